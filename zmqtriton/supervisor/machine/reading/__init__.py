"""Reads the repositories in processes beside the supervisor: a file system may never answer."""
