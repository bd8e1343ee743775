"""`zmqtriton-ctl proxy`: configurations for the proxies in front of several servers."""
