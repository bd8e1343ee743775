"""Sources of facts: files, processes, this machine, and the answers of a running server."""
