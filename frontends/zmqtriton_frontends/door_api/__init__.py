"""The door: clients on this machine ask over ZeroMQ, in any language.

The protocol is in docs/door.md; headers.py makes and reads the beginnings of its messages.
"""
