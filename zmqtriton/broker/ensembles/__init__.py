"""Ensembles: requests that are executed by requests to other models."""
