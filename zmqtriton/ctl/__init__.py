"""`zmqtriton-ctl`: asks a running server, on the same machine, what it does and tells it to load.

Speaks over the control socket in the server's runtime directory, and needs nothing else of it.
"""
