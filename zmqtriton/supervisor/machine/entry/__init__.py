"""Ports, listeners and sockets of the server, and what is known of the servers before it."""
