"""The page of one function, for browsers."""
