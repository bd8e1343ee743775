"""`zmqtriton-ctl`: shows what a running server on this machine does, and commands it.

Talks over the control socket in the server's runtime directory, and needs nothing else of it.
"""
