"""Sequences: which instance has which, what is executed together, and how they end."""
