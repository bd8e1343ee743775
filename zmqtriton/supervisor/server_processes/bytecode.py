"""The directories in which stubs keep the bytecode of their models' own files, by generation."""

from __future__ import annotations

#: In the runtime directory.
FOLDER = "bytecode"


def directory(runtime: str, generation: int) -> str:
    """Return that of one generation, which its first stub makes, and the server removes."""
    return f"{runtime}/{FOLDER}/{generation}"
