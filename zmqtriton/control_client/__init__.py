"""The way of our own programs to running servers: the control socket of one, HTTP of many."""
