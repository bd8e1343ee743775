"""Canaries: versions that are tried beside the one that serves, then promoted or aborted."""
