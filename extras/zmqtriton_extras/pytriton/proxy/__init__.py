"""The arguments of inference callables."""
