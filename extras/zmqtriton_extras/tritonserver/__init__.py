"""Triton's in-process Python API; `api.py` has the names that programs import."""

from __future__ import annotations

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "tritonserver",
    needs=("metrics",),
)
