"""A model of a backend in this process: loaded as a stub loads it, asked without a server."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from zmqtriton import addons
from zmqtriton.config.backends import complete_backend
from zmqtriton.config.model_config import merge_completion
from zmqtriton.config.pbtxt import parse_text, to_json
from zmqtriton_floor import wire
from zmqtriton_stub import instance as this_process
from zmqtriton_stub import model
from zmqtriton_stub.api import pb_utils
from zmqtriton_stub.api.model_config import ModelConfig
from zmqtriton_stub.instance import StubInstance


class Served:
    """A version of a model, from its directory and the text of its configuration."""

    def __init__(self, directory: Path, text: str, settings: dict[str, str] | None = None) -> None:
        config = parse_text(text)
        config.name = directory.name
        complete_backend(config, directory.name, directory)
        options = {"default-max-batch-size": "4", **(settings or {})}
        load = wire.LoadModel(
            f"{config.name}_0",
            config.name,
            1,
            "CPU",
            0,
            str(directory),
            "",
            to_json(config),
            1,
            json.dumps(options),
        )
        this_process.current = StubInstance(load, lambda message: None)
        package = f"zmqtriton_extras.backends.{config.backend}"
        code = importlib.import_module(f"{package}.model")
        model.provide(package, str(addons.directory_of(package)))
        completed = ModelConfig(load.config)
        if hasattr(code.TritonPythonModel, "auto_complete_config"):
            completed = code.TritonPythonModel.auto_complete_config(completed)
        final = to_json(merge_completion(config, completed.as_json()))
        self.config: dict[str, Any] = json.loads(final)
        self.model = code.TritonPythonModel()
        self.model.initialize(
            {
                "model_config": final,
                "model_instance_kind": "CPU",
                "model_instance_name": load.instance,
                "model_instance_device_id": "0",
                "model_repository": load.directory,
                "model_version": "1",
                "model_name": load.model,
            }
        )

    def ask_all(self, *requests: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the outputs of requests of one batch, as lists; an error raises ValueError."""
        names = [entry["name"] for entry in self.config["output"]]
        asked = [
            pb_utils.InferenceRequest(
                inputs=[_tensor(name, array) for name, array in inputs.items()],
                requested_output_names=names,
                model_name=self.config["name"],
            )
            for inputs in requests
        ]
        return [_outputs(response) for response in self.model.execute(asked)]

    def ask(self, **inputs: Any) -> dict[str, Any]:
        [answer] = self.ask_all(inputs)
        return answer


def _tensor(name: str, array: Any) -> Any:
    if isinstance(array, np.ndarray):
        return pb_utils.Tensor(name, array)
    return pb_utils.Tensor.from_dlpack(name, array)


def _outputs(response: Any) -> dict[str, Any]:
    if response.has_error():
        raise ValueError(response.error().message())
    tensors = {tensor.name(): tensor for tensor in response.output_tensors()}
    return {
        name: tensor if tensor.triton_dtype() == 14 else tensor.as_numpy().tolist()
        for name, tensor in tensors.items()
    }
