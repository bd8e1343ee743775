"""A model's own routes: `routes.py` beside its code, in a process of the model's.

The routes of a model `ocr` are a model themselves, `ocr.routes`, of the backend `routes`: so they
have what models have, an environment, restarts, limits, a log, shared memory. `process/` loads and
unloads such models, `extension.py` gives them clients' requests, `backend/` is their code.
"""
