"""The server for people, over HTTP: its pages, its API described, its state, operations on it."""
