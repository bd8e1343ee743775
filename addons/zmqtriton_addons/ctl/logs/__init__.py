"""`zmqtriton-ctl logs`: the last lines of the log, those that come, and those of dead processes."""
