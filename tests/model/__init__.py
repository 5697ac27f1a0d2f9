"""The scripts in any order, and a book in plain Python of what must then be there."""
