"""Questions that may take long, asked in threads: the answers come back to the service's loop."""
