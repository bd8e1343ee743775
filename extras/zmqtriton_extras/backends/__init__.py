"""Backends written in Python that come with the server: they run models that are only files.

Each folder has the model.py of one backend, which the stub imports like a user's; a backend of the
same name in `--backend-directory` precedes it. They use the public model API alone.
"""
