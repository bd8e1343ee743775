"""The kernel's control groups, which keep models to their memory and their share of the cores."""
