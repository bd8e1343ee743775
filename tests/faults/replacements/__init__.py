"""A server is replaced by another while clients of every protocol ask."""
