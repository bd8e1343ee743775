"""`zmqtriton-ctl fleet`: operations on several servers at once."""
