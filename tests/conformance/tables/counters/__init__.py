"""Cases of what a server counts, and how it tells."""
