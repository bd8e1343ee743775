"""The servers of a fleet: how they are found, and called over HTTP."""
