"""The progress of commands that take long."""
