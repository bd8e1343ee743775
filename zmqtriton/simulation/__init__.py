"""`zmqtriton simulate`: the broker's own schedulers, driven by arrivals and executions that are
imagined, on a clock that is counted. No process is started and no model is imported."""
