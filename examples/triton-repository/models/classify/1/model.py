"""Which digit is it? A support vector machine, for all digits that wait at once."""

from pathlib import Path

import joblib
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.machine = joblib.load(Path(__file__).parent / "digits.joblib")

    def execute(self, requests):
        """Compute all requests in one batch, and cut it into their parts again."""
        rows = [
            pb_utils.get_input_tensor_by_name(request, "FIELDS").as_numpy() for request in requests
        ]
        probabilities = self.machine.predict_proba(np.concatenate(rows))
        parts = np.split(probabilities, np.cumsum([len(each) for each in rows])[:-1])
        return [self.response(part) for part in parts]

    def response(self, part):
        digits = part.argmax(1, keepdims=True).astype(np.int64)
        best = part.max(1, keepdims=True).astype(np.float32)
        tensors = [pb_utils.Tensor("DIGIT", digits), pb_utils.Tensor("PROBABILITY", best)]
        return pb_utils.InferenceResponse(tensors)
