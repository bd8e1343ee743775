"""Processes that a model forks: how they ask the instance, and how it answers them."""
