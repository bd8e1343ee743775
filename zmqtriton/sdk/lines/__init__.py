"""Lines: the one way from frontends to the process of an add-on, which no request waits for."""
