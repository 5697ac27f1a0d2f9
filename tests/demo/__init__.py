"""`firetime demo`, played for real."""
