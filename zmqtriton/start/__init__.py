"""The start of a server: its ports, listeners and secrets, and the reasons that forbid it."""
