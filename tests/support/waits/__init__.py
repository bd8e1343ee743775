"""Causes for which a server must not wait."""
