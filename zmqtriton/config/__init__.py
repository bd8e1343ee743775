"""A model's configuration: read, completed, checked, and shown as clients expect it.

Start in `model_config`; each of the other modules has one part of its work. Nothing here logs,
starts a process or knows of running instances.
"""
