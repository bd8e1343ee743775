"""Calls of tools: what a client offers, and what a model calls."""
