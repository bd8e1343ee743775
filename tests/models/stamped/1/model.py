"""Answers with its stamp."""

from __future__ import annotations

import numpy as np
import triton_python_backend_utils as pb_utils

STAMP = 0


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        self.stamp = STAMP

    def execute(
        self, requests: list[pb_utils.InferenceRequest]
    ) -> list[pb_utils.InferenceResponse]:
        responses = []
        for request in requests:
            shape = pb_utils.get_input_tensor_by_name(request, "ID").shape()
            stamps = (("IMPORTED", STAMP), ("INITIALIZED", self.stamp))
            tensors = [pb_utils.Tensor(n, np.full(shape, s, np.int32)) for n, s in stamps]
            responses.append(pb_utils.InferenceResponse(tensors))
        return responses
