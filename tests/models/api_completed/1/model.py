import json
import os

import numpy as np
import triton_python_backend_utils as pb_utils

pb_utils.Logger.log_info(f"{pb_utils.get_model_dir()} is imported by {os.getpid()}")


class TritonPythonModel:
    """Has no config.pbtxt: makes all of its configuration, and answers what it has seen of it."""

    @staticmethod
    def auto_complete_config(auto_complete_model_config):
        config = auto_complete_model_config.as_dict()
        # Models look for their own names here first, so what is not there yet is empty.
        assert (config["max_batch_size"], config["input"], config["output"]) == (0, [], [])
        text = {"data_type": "TYPE_STRING", "dims": [1]}
        auto_complete_model_config.set_max_batch_size(4)
        auto_complete_model_config.set_dynamic_batching()
        auto_complete_model_config.add_input({"name": "ANY", "optional": True, **text})
        auto_complete_model_config.add_output({"name": "SEEN", **text})
        auto_complete_model_config.set_model_transaction_policy({"decoupled": False})
        # The dictionary is no copy.
        assert [entry["name"] for entry in config["input"]] == ["ANY"]
        # This is not the model's to change.
        config["parameters"] = {"a": {"string_value": "b"}}
        pb_utils.Logger.log_info(f"completed in {pb_utils.get_model_dir()}")
        pb_utils.Logger.log_info(f"{pb_utils.get_model_dir()} is completed by {os.getpid()}")
        return auto_complete_model_config

    def initialize(self, args):
        self.config = json.loads(args["model_config"])

    def execute(self, requests):
        seen = json.dumps([pb_utils.get_model_dir(), self.config["parameters"]])
        tensor = pb_utils.Tensor("SEEN", np.array([[seen]], dtype=np.object_))
        return [pb_utils.InferenceResponse([tensor]) for _ in requests]
