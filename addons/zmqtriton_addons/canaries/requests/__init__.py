"""Requests to a model with a canary, in frontends: divided, copied, and their answers compared."""
