"""Models in object stores, as if they were in a directory."""
