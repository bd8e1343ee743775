"""The tensors of requests and responses: where they lie, and how they come there."""
