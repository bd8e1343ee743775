"""Functions as models: the hints of a function are a model's interface.

`@model` marks a function or a class and returns it as it is. `backend/` runs such a file: it reads
the hints into a signature, makes the configuration of it, and turns requests into calls. It is a
model like any other, for Python 3.8 with numpy, so that an exported copy of it runs anywhere.
`sources.py` tells the server which files are of this kind, without importing them.
"""
