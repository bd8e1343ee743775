"""The next server takes over the sockets of this one, and what it was told while it ran."""
