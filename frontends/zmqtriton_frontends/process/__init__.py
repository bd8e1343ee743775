"""The set-up of a frontend's process: allocator, TLS, codecs, memory accounts, request log."""
