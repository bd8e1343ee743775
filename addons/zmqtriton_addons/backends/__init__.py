"""Backends written in Python that come with the server: the code of models that are files.

Each folder has the model.py of one backend, and is laid out as those in `--backend-directory`: a folder
of the same name in `--backend-directory` goes before it. They use the public model API alone.
"""
