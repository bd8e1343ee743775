"""All other calls over HTTP: metadata, repository, settings, shared memory, documentation."""
