"""Servers as replicas of Ray Serve, which places them, counts them and starts them again.

What runs on Ray holds one server each and asks it as anybody would; nothing of ours decides where
a server is, or how many there are.
"""
