"""Runs a TritonPythonModel that has `admit`, `step` and `leave` instead of `execute`.

`admit` takes an InferenceRequest and returns the state of its stream. `step` takes the states of
streams, and returns for each an InferenceResponse, None or an End.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Tuple

import triton_python_backend_utils as pb_utils

from zmqtriton_extras.functions.backend.model import import_file, path_of, pinned
from zmqtriton_extras.functions.backend.signature import MAX_STREAMS
from zmqtriton_extras.functions.backend.streams import StreamLoop, Work

#: Default maximum number of streams.
_STREAMS = "64"


class TritonPythonModel:
    @classmethod
    def auto_complete_config(cls, config: Any) -> Any:
        inner = _class_of(config.as_dict())
        if hasattr(inner, "auto_complete_config"):
            config = inner.auto_complete_config(config)
        config.set_model_transaction_policy({"decoupled": True})
        parameters = config.as_dict().setdefault("parameters", {})
        parameters.setdefault(MAX_STREAMS, {"string_value": _STREAMS})
        return config

    @classmethod
    def preload_starts(cls, args: Dict[str, str]) -> List[Tuple[str, str, str]]:
        """Import the model's file; return where the search for what its preload uses begins."""
        inner = pinned(path_of(json.loads(args["model_config"]))).TritonPythonModel
        start = inner.__module__, inner.__qualname__, "preload"
        return [start] if hasattr(inner, "preload") else []

    @classmethod
    def preload(cls, args: Dict[str, str]) -> None:
        # not by args[…]: only what the inner class reads counts as a condition
        inner = _class_of(json.loads(dict.__getitem__(args, "model_config")))
        if hasattr(inner, "preload"):
            inner.preload(args)

    @classmethod
    def take_preloaded(cls) -> None:
        """Do nothing: attributes of the class stay by themselves."""

    def initialize(self, args: Dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        self._model = _class_of(config)()
        if hasattr(self._model, "initialize"):
            self._model.initialize(args)
        row = config.get("parameters", {}).get(MAX_STREAMS, {})
        streams = int(row.get("string_value", _STREAMS))
        budget = getattr(self._model, "budget", 0)
        self._loop = StreamLoop(Work(self._model, streams, budget), args)
        vars(self).update(self._loop.calls())
        if hasattr(self._model, "is_ready"):
            self.is_ready = self._model.is_ready

    def finalize(self) -> None:
        self._loop.close()
        if hasattr(self._model, "finalize"):
            self._model.finalize()


def _class_of(config: Dict[str, Any]) -> Any:
    """Import the model's file, and return its class TritonPythonModel."""
    path = path_of(config)
    model_class = getattr(import_file(path), "TritonPythonModel", None)
    for name in ("admit", "step"):
        if not hasattr(model_class, name):
            text = f"{path} has no class TritonPythonModel with the method {name}"
            raise pb_utils.TritonModelException(text)
    return model_class
