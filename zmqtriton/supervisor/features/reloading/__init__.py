"""Models that are loaded again when their files change (`--reload`)."""
