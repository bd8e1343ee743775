"""Answers with its inputs, for tests of clients: OUTPUT0 is INPUT0, and so on."""

from __future__ import annotations

import json
import time
from typing import Any

import triton_python_backend_utils as pb_utils

from zmqtriton_extras.backends import configuration

_INPUT, _OUTPUT = "INPUT", "OUTPUT"


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        outputs = {entry["name"]: entry for entry in config["output"]}
        #: input name to output name
        self._pairs = {entry["name"]: _pair(entry, outputs, config) for entry in config["input"]}
        if len(outputs) != len(self._pairs):
            raise pb_utils.TritonModelException(
                f"model '{config['name']}' must have as many outputs as inputs, got "
                f"{len(self._pairs)} inputs and {len(outputs)} outputs"
            )
        delay_ms = configuration.number(config, "execute_delay_ms", 0)
        multiplier = configuration.number(config, "instance_wise_delay_multiplier", 0)
        place = int(args["model_instance_name"].rpartition("_")[2])
        self._delay_s = delay_ms * max(1, multiplier * place) / 1000

    def execute(self, requests: list[Any]) -> list[Any]:
        if self._delay_s:
            time.sleep(self._delay_s)
        return [pb_utils.InferenceResponse(self._answer(request)) for request in requests]

    def _answer(self, request: Any) -> list[Any]:
        outputs = request.requested_output_names()
        named = ((self._pairs[tensor.name()], tensor) for tensor in request.inputs())
        return [_renamed(tensor, name) for name, tensor in named if name in outputs]


def _pair(entry: dict[str, Any], outputs: dict[str, Any], config: dict[str, Any]) -> str:
    """Return the name of the output for an input. Raises TritonModelException."""
    name = entry["name"]
    number = name[len(_INPUT) :]
    if not (name.startswith(_INPUT) and number.isdecimal()):
        raise pb_utils.TritonModelException(
            f"inputs of model '{config['name']}' must be called INPUT<index>, got '{name}'"
        )
    output = outputs.get(_OUTPUT + number)
    if output is None:
        raise pb_utils.TritonModelException(
            f"model '{config['name']}' has no output {_OUTPUT}{number} for its input '{name}'; "
            "add it to config.pbtxt"
        )
    if (output["data_type"], output["dims"]) != (entry["data_type"], entry["dims"]):
        raise pb_utils.TritonModelException(
            f"output {_OUTPUT}{number} of model '{config['name']}' must have the data type and the "
            f"dims of input '{name}'"
        )
    return str(output["name"])


def _renamed(tensor: Any, name: str) -> Any:
    try:
        return pb_utils.Tensor(name, tensor.as_numpy())
    except pb_utils.TritonModelException:  # a type that numpy lacks, or memory of a GPU
        return pb_utils.Tensor.from_dlpack(name, tensor)
