"""The log of the server: its way out, and its last lines for people."""
