"""Machines as they are in production, which take something away from a server."""
