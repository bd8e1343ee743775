"""The log and its last lines, and the tables that are printed at the start."""
