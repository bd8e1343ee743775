"""Tensors as they travel, for the tables."""

from __future__ import annotations

import struct

FP32 = "FP32"


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def integers(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)
