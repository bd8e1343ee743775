"""Subjects: each function reads one, judges it and yields its findings."""
