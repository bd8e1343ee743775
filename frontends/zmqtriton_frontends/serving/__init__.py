"""The life of a process that serves clients, and its listeners."""
