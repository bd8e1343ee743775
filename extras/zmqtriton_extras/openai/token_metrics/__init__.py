"""Metrics of tokens, and limits of them, for models that make text."""
