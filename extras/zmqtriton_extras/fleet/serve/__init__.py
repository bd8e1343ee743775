"""Servers as replicas of Ray Serve, which places, counts and restarts them.

A replica owns one server and calls it like any client; our code does not decide where a server is,
or how many there are.
"""
