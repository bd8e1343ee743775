import os

import numpy as np
import triton_python_backend_utils as pb_utils
from features import features


class TritonPythonModel:
    """`OUTPUT__0`: a score for each pattern, for each image in `INPUT__0`."""

    def initialize(self, args):
        path = os.path.join(args["model_repository"], args["model_version"], "weights.npz")
        try:
            self.trained = dict(np.load(path))
        except FileNotFoundError:
            raise pb_utils.TritonModelException(f"{path} is made by make.py") from None

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        images = pb_utils.get_input_tensor_by_name(request, "INPUT__0").as_numpy()
        trained = self.trained
        x = (features(images) - trained["mean"]) / trained["scale"]
        scores = x @ trained["weights"] + trained["bias"]
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT__0", scores)])
