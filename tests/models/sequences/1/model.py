"""Adds up what each sequence brings, and reports what the whole batch was given."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.name = args["model_instance_name"]
        self.sums = {}

    def execute(self, requests):
        batch = [_tell(request) for request in requests]
        answers = []
        for request in requests:
            value = int(pb_utils.get_input_tensor_by_name(request, "VALUE").as_numpy().ravel()[0])
            sequence = request.correlation_id()
            if request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
                self.sums[sequence] = 0
            self.sums[sequence] = self.sums.get(sequence, 0) + value
            report = json.dumps({"instance": self.name, "batch": batch})
            answers.append(
                pb_utils.InferenceResponse(
                    [
                        pb_utils.Tensor("SUM", np.array([[self.sums[sequence]]], np.int32)),
                        pb_utils.Tensor("REPORT", np.array([[report.encode()]], np.object_)),
                    ]
                )
            )
        return answers


def _tell(request):
    """Its sequence, its flags, and its inputs as type, shape and elements."""
    inputs = {}
    for tensor in request.inputs():
        array = tensor.as_numpy()
        elements = [e.decode() if isinstance(e, bytes) else e for e in array.ravel().tolist()]
        inputs[tensor.name()] = [str(array.dtype), list(array.shape), elements]
    return [request.correlation_id(), request.flags(), inputs]
