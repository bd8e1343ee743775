"""The setting up of a frontend's process: its allocator, TLS, codecs and its request log."""
