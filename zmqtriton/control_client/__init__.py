"""The way of our own programs to a running server: its control socket, and HTTP."""
