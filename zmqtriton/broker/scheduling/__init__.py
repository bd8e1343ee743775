"""Scheduling: the choice of the next request, and of the instance that executes it."""
