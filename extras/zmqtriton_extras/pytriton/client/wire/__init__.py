"""The way to a server: calls over HTTP and gRPC, each for threads and for asyncio.

Knows no model client. A refusal of the server is a ServerError, a late response a TimeoutError, and
a failed connection another OSError.
"""
