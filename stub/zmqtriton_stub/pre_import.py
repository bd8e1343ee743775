"""Checksums of files and the priority of the process, before a model is imported.

The stub does it, and not the supervisor, because files may be large and a priority is that of one
process. Must not import anything of the model.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any, Callable

from zmqtriton_stub.api.errors import TritonModelException

_CHUNK_BYTES = 1 << 20
_NICENESS = {"PRIORITY_MAX": -10, "PRIORITY_MIN": 10}


def check_files(config: Any, directory: str) -> None:
    """Compare the files with the parameters of the agent `checksum`. Raises if they differ."""
    agents = config.get("model_repository_agents", {}).get("agents", [])
    for agent in agents:
        for key, expected in agent["parameters"].items():
            name = key.partition(":")[2]
            try:
                digest = _md5(os.path.join(directory, name))
            except OSError as error:
                raise TritonModelException(
                    f"failed to open file '{name}' for its checksum: {error.strerror}"
                ) from None
            if digest != expected.strip().lower():
                raise TritonModelException(
                    f"Mismatched MD5 hash for file {name}, expected {expected}, got {digest}"
                )


def _md5(path: str) -> str:
    digest = hashlib.md5()
    with open(path, "rb") as file:
        chunk = file.read(_CHUNK_BYTES)
        while chunk:
            digest.update(chunk)
            chunk = file.read(_CHUNK_BYTES)
    return digest.hexdigest()


def take_priority(config: Any, say: Callable[[str, str], None]) -> None:
    """Set the priority of this process, as far as the system allows it."""
    name = config.get("optimization", {}).get("priority", "")
    if name in _NICENESS:
        try:
            os.nice(_NICENESS[name])
        except OSError as error:
            say("W", f"{name} has no effect: {error.strerror}")
