"""Inference over HTTP: infer, generate, their bodies and encodings."""
