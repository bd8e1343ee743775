"""Triton's extension `generate`, and `infer_stream`: JSON in, JSON or events out."""
