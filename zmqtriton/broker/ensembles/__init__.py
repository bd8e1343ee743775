"""Ensembles: requests that spawn requests."""
