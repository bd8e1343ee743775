"""A server that the user's own process starts, and calls to models without HTTP."""
