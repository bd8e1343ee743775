"""Directories of models that are added and removed while the server runs."""
