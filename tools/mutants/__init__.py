"""Small faults put into the code that decides, to see which of them the tests notice."""
