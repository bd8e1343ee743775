"""Adds what each request brings to a state that the server keeps, and reports what it was given."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        batch = [_tell(request) for request in requests]
        return [_answer(request, batch) for request in requests]


def _answer(request, batch):
    state = pb_utils.get_input_tensor_by_name(request, "BEFORE").as_numpy()
    value = pb_utils.get_input_tensor_by_name(request, "VALUE").as_numpy()
    texts = pb_utils.get_input_tensor_by_name(request, "TEXT_BEFORE").as_numpy()
    if value.ravel()[0] < 0:
        return pb_utils.InferenceResponse(error=pb_utils.TritonError("negative"))
    text = texts.ravel()[0].decode() + str(value.ravel()[0])
    report = np.array([[json.dumps(batch)]], np.object_)
    return pb_utils.InferenceResponse(
        [
            pb_utils.Tensor("AFTER", state + value),
            pb_utils.Tensor("TEXT_AFTER", np.array([[text]], np.object_)),
            pb_utils.Tensor("REPORT", report),
        ]
    )


def _tell(request):
    """Its sequence, and its inputs as elements, by name."""
    inputs = {}
    for tensor in sorted(request.inputs(), key=lambda one: one.name()):
        elements = tensor.as_numpy().ravel().tolist()
        inputs[tensor.name()] = [e.decode() if isinstance(e, bytes) else e for e in elements]
    return [request.correlation_id(), inputs]
