"""The tensors of requests and responses: their places, and the copies to shared memory."""
