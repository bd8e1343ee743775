"""`zmqtriton simulate`: runs the broker's own schedulers against simulated requests.

Time is simulated, too. No process is started and no model is imported.
"""
