"""Access by bearer tokens: the tokens of a file, their rights, and the clients with wrong ones."""
