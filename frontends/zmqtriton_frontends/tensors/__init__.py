"""The tensors of requests and responses: where they are, and how they are put there."""
