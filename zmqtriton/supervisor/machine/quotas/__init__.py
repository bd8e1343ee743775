"""Quotas of models on this machine, and their enforcement."""
