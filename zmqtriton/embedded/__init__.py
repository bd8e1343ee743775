"""A server that the user's own process starts, and calls to models without HTTP.

`zmqtriton.Server` starts a server and ends it, `zmqtriton.connect` finds one that runs; both take
part in it as a frontend of their own, on a thread with an asyncio loop.
"""
