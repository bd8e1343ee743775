"""Loading a model: one load, what is asked before it, and what it waits for."""
