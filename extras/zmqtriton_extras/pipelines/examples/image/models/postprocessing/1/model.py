import json
import os

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """`result`: the name of the highest score of each row, and its probability."""

    def initialize(self, args):
        named = json.loads(args["model_config"])["parameters"]["labels"]["string_value"]
        with open(os.path.join(args["model_repository"], named)) as file:
            self.labels = file.read().split()

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        scores = pb_utils.get_input_tensor_by_name(request, "INPUT__0").as_numpy()
        shares = np.exp(scores - scores.max(1, keepdims=True, initial=-np.inf))
        shares /= shares.sum(1, keepdims=True)
        texts = [f"{self.labels[row.argmax()]} {row.max():.2f}".encode() for row in shares]
        return pb_utils.InferenceResponse([pb_utils.Tensor("result", np.array(texts, np.object_))])
