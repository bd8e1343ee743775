"""Writes down what it executes, and answers with the ID and the stamp of its file."""

from __future__ import annotations

import json
import os
import time

import numpy as np
import triton_python_backend_utils as pb_utils

STAMP = 1000


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        path = json.loads(args["model_config"])["parameters"]["JOURNAL"]["string_value"]
        self._journal = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        # long enough for a fault to come meanwhile
        time.sleep(0.2)

    def execute(
        self, requests: list[pb_utils.InferenceRequest]
    ) -> list[pb_utils.InferenceResponse]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
        ids = pb_utils.get_input_tensor_by_name(request, "ID").as_numpy()
        pauses = pb_utils.get_input_tensor_by_name(request, "MS").as_numpy()
        for name, milliseconds in zip(ids.ravel(), pauses.ravel()):
            self._write("start", name)
            time.sleep(int(milliseconds) / 1000)
            self._write("end", name)
        stamps = np.full(ids.shape, STAMP, np.int32)
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor("ID", ids), pb_utils.Tensor("STAMP", stamps)]
        )

    def _write(self, event: str, name: bytes) -> None:
        record = {
            "event": event,
            "id": name.decode("utf-8"),
            "pid": os.getpid(),
            "ns": time.monotonic_ns(),
        }
        # One write each, as in the model `journal`.
        os.write(self._journal, json.dumps(record).encode("utf-8") + b"\n")

    def finalize(self) -> None:
        os.close(self._journal)
