"""Sums of sequences, for the backends that clients are tested with.

OUTPUT is the sum of INPUT so far. Control tensors say where a sequence starts and ends, as in
Triton's backends of these names.
"""

from __future__ import annotations

import json
import time
from typing import Any, Dict, Tuple

import numpy as np
import triton_python_backend_utils as pb_utils

from zmqtriton_extras.backends import configuration, execution

_INPUT, _OUTPUT = "INPUT", "OUTPUT"


class AccumulatingModel:
    """A model that accumulates values of a sequence; subclasses name its control tensors."""

    CONTROLS: Tuple[str, ...] = ()
    #: The last sum has the sequence's number added.
    ADDS_NUMBER = False

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        _check(config, self.CONTROLS)
        self._delay_s = configuration.number(config, "execute_delay_ms", 0) / 1000
        #: Sums by the number of the sequence.
        self._sums: Dict[Any, int] = {}

    def execute(self, requests: list[Any]) -> list[Any]:
        if self._delay_s:
            time.sleep(self._delay_s)
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        arrays = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        values = arrays[_INPUT]
        if values.ndim > 1 and len(values) != 1:
            text = "unable to execute more than one timestep at a time"
            return execution.failure(ValueError(text))
        if not arrays["READY"].any():
            return pb_utils.InferenceResponse([])
        number = request.correlation_id()
        before = 0 if arrays["START"].any() else self._sums.get(number, 0)
        total = before + int(values.sum())
        is_end = bool(request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END)
        if is_end and self.ADDS_NUMBER:
            total += int(number)
        if is_end:
            self._sums.pop(number, None)
        else:
            self._sums[number] = total
        low = total & 0xFFFFFFFF  # as a sum of 32 bits
        output = np.full(values.shape, low, dtype=np.uint32).view(np.int32)
        return pb_utils.InferenceResponse([pb_utils.Tensor(_OUTPUT, output)])


def _check(config: dict[str, Any], controls: tuple[str, ...]) -> None:
    """Check the tensors of a model. Raises TritonModelException."""
    batching = config.get("sequence_batching") or {}
    names = {entry["name"] for entry in batching.get("control_input") or ()}
    if names != set(controls):
        *first, last = (f"'{name}'" for name in controls)
        raise pb_utils.TritonModelException(
            f"{', '.join(first)} and {last} must be configured as the control inputs"
        )
    for kind, name in (("input", _INPUT), ("output", _OUTPUT)):
        entries = config.get(kind) or ()
        if [(entry["name"], entry["data_type"]) for entry in entries] != [(name, "TYPE_INT32")]:
            raise pb_utils.TritonModelException(
                f"model must have one {kind} '{name}' with TYPE_INT32 data-type"
            )
