"""The HTTP frontend: KServe v2 with Triton's extensions, a Falcon ASGI application under gunicorn.

`server/` is the process, `app.py` the table of routes; the rest turns bytes into checked requests
for the gateway and responses back into bytes. Knows nothing of instances, queues or batches.
"""
