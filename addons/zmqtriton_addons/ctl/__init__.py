"""Commands of `zmqtriton-ctl` that show, steer and ask; a server runs without them."""
