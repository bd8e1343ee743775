"""A model's configuration: read, completed, checked, and shown as clients expect it.

Start in `model_config`; the other modules each hold one part of its work. Nothing here logs,
starts a process or knows of instances that run.
"""
