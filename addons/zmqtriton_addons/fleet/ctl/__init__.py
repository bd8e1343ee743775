"""`zmqtriton-ctl fleet`: what is done to several servers at once."""
