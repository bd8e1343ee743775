"""Instances that follow the load of their model."""
