"""`zmqtriton-ctl bench`: the load of several clients on one model, and where its time goes."""
