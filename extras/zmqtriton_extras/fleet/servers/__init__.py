"""The servers of a fleet: where they are, and how they are asked over HTTP."""
