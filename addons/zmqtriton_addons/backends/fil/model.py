"""Runs forests of decision trees with Treelite, on the CPU, as Triton's `fil` does."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from zmqtriton_addons.backends import configuration, execution, signature
from zmqtriton_addons.backends.signature import Io

configuration.limit_spinning()
try:
    from zmqtriton_addons.backends.fil import forests
except ImportError as error:
    raise configuration.require("fil", "treelite", "treelite", error) from error

_INPUT, _OUTPUT = "input__0", "output__0"


class TritonPythonModel:
    #: What auto_complete_config has read, for the instance of the same process.
    _read: Any = None

    @classmethod
    def auto_complete_config(cls, config: Any) -> Any:
        document = config.as_dict()
        if not signature.is_complete(document):
            cls._read = forest = forests.read(document)
            signature.complete(config, *_tensors(document, forest))
        return config

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        forest, type(self)._read = self._read, None
        self._forest = forests.read(config) if forest is None else forest
        inputs, _ = _tensors(config, self._forest)
        # how many columns the output has is for the configuration to say
        signature.check(config, inputs, [Io(_OUTPUT, "TYPE_FP32", None)])
        self._output = forests.output_of(config, self._forest)
        self._signature = signature.read(config)
        self._threads = configuration.threads(config)
        if args["model_instance_kind"] == "GPU":
            pb_utils.Logger.log_warn(
                f"{args['model_instance_name']} runs on the CPU: treelite has no kernels for GPUs"
            )

    def execute(self, requests: list[Any]) -> list[Any]:
        return execution.execute(requests, self._run, self._signature)

    def _run(self, inputs: dict[str, Any], outputs: list[str]) -> dict[str, Any]:
        rows = np.ascontiguousarray(inputs[_INPUT].reshape(-1, self._forest.features))
        predicted = self._forest.predict(rows, self._threads or -1)
        return {name: self._output.of(predicted) for name in outputs}


def _tensors(config: dict[str, Any], forest: Any) -> tuple[list[Io], list[Io]]:
    columns = 1
    if forests.gives_probabilities(config) or not forest.is_classifier:
        columns = forest.columns
    return (
        [Io(_INPUT, "TYPE_FP32", [-1, forest.features])],
        [Io(_OUTPUT, "TYPE_FP32", [-1, columns])],
    )
