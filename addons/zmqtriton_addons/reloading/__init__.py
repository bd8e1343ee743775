"""Reloads: models whose files have changed are loaded again, by themselves or at a command."""
