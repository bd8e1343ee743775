"""The page of metrics as OpenMetrics, with exemplars that lead from latencies to traces.

`form.py` chooses it for the scrapers that accept it, `text.py` converts the page, and the process
of traces (`zmqtriton_addons.tracing.exemplars`) knows which requests were traced.
"""
