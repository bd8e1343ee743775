"""Metrics of LLM tokens, and limits of them, for models that generate text."""
