"""The door: clients on this machine ask over ZeroMQ, in any language. The protocol is docs/door.md.

What both ends share stands here; `process/` is the server's end, `client/` our own client.
"""
