"""Inference over gRPC: ModelInfer and ModelStreamInfer, and their messages."""
