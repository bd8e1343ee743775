"""Loading a model: one load, the inquiry before it, and its waits."""
