"""All other RPCs: health, metadata, repository, settings, shared memory, reflection."""
