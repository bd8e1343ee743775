"""Access by bearer tokens: the file of tokens, their rights, and clients with wrong tokens."""
