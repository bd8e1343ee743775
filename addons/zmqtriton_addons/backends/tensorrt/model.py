"""Runs plans with TensorRT on a GPU. Never run: there was no GPU to run it on."""

from __future__ import annotations

import json
from typing import Any

import triton_python_backend_utils as pb_utils

from zmqtriton_addons.backends import configuration, execution, signature

try:
    from zmqtriton_addons.backends.tensorrt import plans
except ImportError as error:
    missing = "cupy" if error.name == "cupy" else "tensorrt"
    raise configuration.require("tensorrt", missing, "tensorrt cupy-cuda12x", error) from error


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config: Any) -> Any:
        document = config.as_dict()
        if not signature.is_complete(document):
            plan = plans.Plan(configuration.find_file(document, "model.plan"), 0, 0)
            signature.complete(config, plan.inputs(), plan.outputs())
        return config

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        if args["model_instance_kind"] != "GPU":
            raise pb_utils.TritonModelException(
                f"model '{config['name']}' of backend 'tensorrt' needs instances of KIND_GPU"
            )
        self._plan = plans.Plan(
            configuration.find_file(config, "model.plan"),
            int(args["model_instance_device_id"]),
            _profile(config),
        )
        signature.check(config, self._plan.inputs(), self._plan.outputs())
        self._signature = signature.read(config)

    def execute(self, requests: list[Any]) -> list[Any]:
        return execution.execute(requests, self._plan.run, self._signature)


def _profile(config: dict[str, Any]) -> int:
    """Return the optimization profile: the first one that the first group names, or 0."""
    groups = config.get("instance_group") or [{}]
    named = groups[0].get("profile") or ["0"]
    return int(named[0])
