"""The process that has a model of routes loaded for each model with a routes.py."""
