"""Counts how soon the points of a row leave the circle of radius 2 under z -> z * z + c."""

import numpy as np
import triton_python_backend_utils as pb_utils

WIDTH = 512
MAX_STEPS = 400


class TritonPythonModel:
    def execute(self, requests):
        arrays = [
            pb_utils.get_input_tensor_by_name(request, "IMAGINARY").as_numpy()
            for request in requests
        ]
        steps = count(np.linspace(-2.2, 0.8, WIDTH) + 1j * np.concatenate(arrays))
        responses, begin = [], 0
        for rows in arrays:
            mine = steps[begin : begin + len(rows)]
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("STEPS", mine)]))
            begin += len(rows)
        return responses


def count(points):
    value, steps = np.zeros_like(points), np.zeros(points.shape, np.int32)
    for _ in range(MAX_STEPS):
        inside = np.abs(value) <= 2
        value[inside] = value[inside] ** 2 + points[inside]
        steps += inside
    return steps
