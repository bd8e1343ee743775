"""The endpoints of Amazon SageMaker and Google's Vertex AI, on ports of their own."""

from __future__ import annotations

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "clouds",
    http=(".extension:EXTENSION",),
    after=("generate",),
)
