"""The directories that a server makes: private, shared with the group of its stubs, removed."""
