"""The way to a server: calls over HTTP and gRPC, each for threads and for asyncio.

Knows no model client. What the server refuses is a ServerError, what does not come in time a
TimeoutError, and a connection that cannot be had another OSError.
"""
