"""Answers with a response for each element of IN, each after its DELAY in milliseconds.

WAIT is how long execute() takes, also in milliseconds: until then no other request is begun.
"""

from __future__ import annotations

import time
from typing import Any, Iterator

import numpy as np
import triton_python_backend_utils as pb_utils

from zmqtriton_extras.backends import streams


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config: Any) -> Any:
        return streams.complete(
            config,
            [
                {"name": "IN", "data_type": "TYPE_INT32", "dims": [-1]},
                {"name": "DELAY", "data_type": "TYPE_UINT32", "dims": [-1]},
                {"name": "WAIT", "data_type": "TYPE_UINT32", "dims": [1]},
            ],
            [
                {"name": "OUT", "data_type": "TYPE_INT32", "dims": [1]},
                {"name": "IDX", "data_type": "TYPE_UINT32", "dims": [1]},
            ],
        )

    def initialize(self, args: dict[str, str]) -> None:
        self._senders = streams.Senders()

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            self._begin(request)

    def _begin(self, request: Any) -> None:
        inputs = {tensor.name(): tensor.as_numpy().reshape(-1) for tensor in request.inputs()}
        values, delays = inputs["IN"], inputs["DELAY"]
        if len(values) != len(delays):
            text = f"expected IN and DELAY to have the same size, got {len(values)}, {len(delays)}"
            error = pb_utils.InferenceResponse(error=pb_utils.TritonError(text))
            final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
            request.get_response_sender().send(error, final)
            return

        def responses() -> Iterator[dict[str, Any]]:
            for index, (value, delay_ms) in enumerate(zip(values, delays)):
                time.sleep(int(delay_ms) / 1000)
                yield {
                    "OUT": np.array([value], dtype=np.int32),
                    "IDX": np.array([index], dtype=np.uint32),
                }

        self._senders.begin(request, responses)
        time.sleep(int(inputs["WAIT"][0]) / 1000)

    def finalize(self) -> None:
        self._senders.join()
