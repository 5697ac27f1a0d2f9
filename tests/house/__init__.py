"""The house is in order: its files keep its rules and the test kit does what it says."""
