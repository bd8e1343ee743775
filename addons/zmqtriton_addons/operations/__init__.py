"""Operators' commands for a server: stacks and restarts of models, and further repositories."""
