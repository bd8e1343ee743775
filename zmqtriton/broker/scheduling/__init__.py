"""Scheduling: which request is executed next, and by which instance."""
