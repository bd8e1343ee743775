"""Readers: they collect facts from the system and judge nothing.

What a test prepares lies below a `root` that takes the place of /.
"""
