"""`zmqtriton-ctl infer`: one request to a model, from values on the command line."""
