"""`zmqtriton-ctl explain`: why a model is not ready, fails or is slow, and what to do about it."""
