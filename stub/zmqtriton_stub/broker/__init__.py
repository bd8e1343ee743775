"""The stub's side of the conversation with the broker."""
