import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """ANSWER is what the Python expression in QUESTION is worth inside the stub, as JSON."""

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        question = pb_utils.get_input_tensor_by_name(request, "QUESTION").as_numpy()[0]
        answer = json.dumps(eval(question.decode(), {}))
        output = pb_utils.Tensor("ANSWER", np.array([answer.encode()], dtype=np.object_))
        return pb_utils.InferenceResponse(output_tensors=[output])
