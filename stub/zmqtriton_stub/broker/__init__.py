"""The stub's side of its conversation with the broker."""
