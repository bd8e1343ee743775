"""Triton's extension `generate`, and `infer_stream`: JSON in, JSON or events out."""

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "generate",
    offers={
        "http.extension": ".extension:EXTENSION",
        "diagnosis.config": ".checks:warnings",
    },
)
