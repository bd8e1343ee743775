"""A client of a server's door: models asked over ZeroMQ, from a process that knows nothing else.

The protocol is docs/door.md's. `zmqtriton.Door` is for threads and for coroutines.
"""
