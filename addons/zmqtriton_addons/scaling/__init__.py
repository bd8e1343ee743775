"""Scaling: how many instances a model has, as an operator says or as its load needs."""
