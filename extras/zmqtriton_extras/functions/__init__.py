"""Serves Python functions as models: their type hints become inputs and outputs.

`@model` marks a function or a class, and returns it unchanged. `backend/` runs in the model's own
Python, 3.8 or newer with numpy: it reads the hints, writes the configuration, and turns requests
into calls. `zmqtriton export` copies it, so that Triton can run functions. The other modules run in
the server, which finds functions in files by `sources.py` without importing them.
"""
