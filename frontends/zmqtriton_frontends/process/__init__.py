"""What a frontend's process sets up for itself: its allocator, TLS, codecs and its request log."""
