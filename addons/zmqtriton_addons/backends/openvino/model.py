"""Runs models with OpenVINO: of its own format, of ONNX and others that it reads."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from zmqtriton_addons.backends import configuration, execution, signature

try:
    from zmqtriton_addons.backends.openvino import compiled
except ImportError as error:
    raise configuration.require("openvino", "openvino", "openvino", error) from error


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config: Any) -> Any:
        document = config.as_dict()
        if not signature.is_complete(document):
            model = compiled.read(document)
            compiled.free_batch(document, model)
            signature.complete(config, compiled.inputs(model), compiled.outputs(model))
        return config

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        model = compiled.read(config)
        compiled.free_batch(config, model)
        inputs, outputs = compiled.inputs(model), compiled.outputs(model)
        signature.check(config, inputs, outputs)
        self._model = compiled.compile_model(config, model, args["model_instance_kind"])
        self._strings = {io.name for io in inputs if io.data_type == "TYPE_STRING"}
        #: the place of each output among the model's
        self._places = {io.name: place for place, io in enumerate(outputs)}
        self._signature = signature.read(config)

    def execute(self, requests: list[Any]) -> list[Any]:
        return execution.execute(requests, self._run, self._signature)

    def _run(self, inputs: dict[str, Any], outputs: list[str]) -> dict[str, Any]:
        for name in self._strings.intersection(inputs):
            inputs[name] = execution.to_strings(inputs[name], name).astype(np.str_)
        # inputs are read where they are; outputs are copied, since the next call writes over them
        arrays = self._model(inputs, share_inputs=True, share_outputs=False)
        return {name: _array(arrays[self._places[name]]) for name in outputs}


def _array(array: Any) -> Any:
    return array.astype(np.object_) if array.dtype.kind == "U" else array
