"""Commands of `zmqtriton` that write files for people who run servers."""
