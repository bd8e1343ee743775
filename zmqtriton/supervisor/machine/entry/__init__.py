"""Ports, listeners and sockets of the server, and the servers before it on the same ports."""
