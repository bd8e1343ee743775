"""A model's own routes: `routes.py` next to its code, in a process of the model's.

The routes of a model `ocr` are a model themselves, `ocr.routes`, of the backend `routes`. So they
have an environment, restarts, limits, a log and shared memory like any model. `process/` loads and
unloads such models, `extension.py` gives them clients' requests, `backend/` is their code.
"""
