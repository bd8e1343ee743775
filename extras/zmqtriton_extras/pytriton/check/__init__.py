"""The environment as a log, and a first model."""
