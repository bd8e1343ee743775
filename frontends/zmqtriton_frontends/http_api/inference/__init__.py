"""Inference over HTTP: infer, its bodies and encodings."""
