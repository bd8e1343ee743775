import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Says how it went."""

    @staticmethod
    def auto_complete_config(config):
        try:
            pb_utils.is_model_ready("x")
        except pb_utils.TritonModelException as error:
            TritonPythonModel.refusal = str(error)
        return config

    def initialize(self, args):
        model = json.loads(args["model_config"]).get("parameters", {})["LOADS"]["string_value"]
        pb_utils.load_model(model)
        self.was_ready = pb_utils.is_model_ready(model), pb_utils.is_model_ready(args["model_name"])

    def execute(self, requests):
        data = np.array([f"{self.was_ready} {self.refusal}".encode()], dtype=np.object_)
        tensor = pb_utils.Tensor("TEXT", data)
        return [pb_utils.InferenceResponse([tensor]) for _ in requests]

    def finalize(self):
        pb_utils.unload_model("x")
