"""Where the tensors of requests and responses lie, and how they come there."""
