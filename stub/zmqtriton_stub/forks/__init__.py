"""The forks of a model's process: their calls to the instance, and its answers."""
