"""A client of a server's door: models asked over ZeroMQ, from a process that knows nothing else.

Its public name is `zmqtriton.Door`, for threads and for coroutines.
"""
