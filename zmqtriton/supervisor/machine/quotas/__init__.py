"""Quotas of models on this machine, and who sees to it that they are kept."""
