"""Segments of shared memory, and the files of regions of clients."""
