"""LoRA adapters of a model, from the file multi_lora.json of Triton's backend."""

from __future__ import annotations

import os
from typing import Any, Dict

import triton_python_backend_utils as pb_utils

from zmqtriton_addons.backends import configuration

_FILE = "multi_lora.json"


class Adapters:
    """The adapters that requests may name."""

    def __init__(self, directory: str) -> None:
        """Read the file, if there is one: an object of names and paths."""
        path = os.path.join(directory, _FILE)
        self._paths: Dict[str, str] = {}
        if not os.path.exists(path):
            return
        paths = configuration.read_json(path)
        if not isinstance(paths, dict) or not all(isinstance(p, str) for p in paths.values()):
            raise pb_utils.TritonModelException(f"{path} must have a path for each name")
        self._paths = paths

    def arguments(self, name: str) -> Dict[str, Any]:
        """Return the arguments of generate() for an adapter, or for none. Raises ValueError."""
        if not name:
            return {}
        if name not in self._paths:
            raise ValueError(f"unknown LoRA adapter '{name}'")
        from vllm.lora.request import LoRARequest

        # numbers begin with 1 in vLLM
        number = list(self._paths).index(name) + 1
        return {"lora_request": LoRARequest(name, number, self._paths[name])}
