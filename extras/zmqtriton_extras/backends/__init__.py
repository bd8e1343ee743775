"""Backends written in Python that come with the server: the code of models that are files.

Each folder has the model.py of one backend, which the stub imports as it imports a user's; one of
the same name in `--backend-directory` goes before it. They use the public model API alone.
"""
