"""Runs ONNX files with ONNX Runtime, like Triton's backend of this name."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from zmqtriton_extras.backends import configuration, execution, signature

try:
    from zmqtriton_extras.backends.onnxruntime import sessions
    from zmqtriton_extras.backends.onnxruntime.bound_outputs import BoundOutputs
except ImportError as error:
    raise configuration.require("onnxruntime", "onnxruntime", "onnxruntime", error) from error


class TritonPythonModel:
    #: Session that auto_complete_config has opened, for the instance in the same process.
    _opened: Any = None

    @classmethod
    def auto_complete_config(cls, config: Any) -> Any:
        document = config.as_dict()
        if signature.is_complete(document):
            return config
        plan = sessions.plan({**document, "instance_group": _groups(document)}, "CPU", "0")
        session = plan.open()
        signature.complete(config, *sessions.tensors(session))
        cls._opened = plan, session
        return config

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        kind = args["model_instance_kind"]
        plan = sessions.plan(config, kind, args["model_instance_device_id"])
        opened, type(self)._opened = self._opened, None
        is_same = opened is not None and opened[0] == plan
        self._session = opened[1] if is_same else plan.open()
        inputs, outputs = sessions.tensors(self._session)
        signature.check(config, inputs, outputs)
        self._strings = {io.name for io in inputs if io.data_type == "TYPE_STRING"}
        self._signature = signature.read(config)
        kinds = {
            io.name: np.dtype(pb_utils.triton_string_to_numpy(io.data_type))
            for io in (*inputs, *outputs)
            if io.data_type != "TYPE_STRING"
        }
        self._bound = BoundOutputs(self._session, kinds)
        pb_utils.Logger.log_verbose(
            f"session of {args['model_instance_name']}: {self._session.get_providers()}, "
            f"{plan.intra_op_threads} threads within operators"
        )

    def execute(self, requests: list[Any]) -> list[Any]:
        return execution.execute(requests, self._run, self._signature)

    def _run(self, inputs: dict[str, Any], outputs: list[str]) -> dict[str, Any]:
        for name in self._strings.intersection(inputs):
            inputs[name] = execution.to_strings(inputs[name], name)
        if not outputs:
            return {}
        arrays = self._bound.run(inputs, outputs)
        if arrays is None:
            arrays = self._session.run(outputs, inputs)
        return dict(zip(outputs, arrays))


def _groups(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the instance groups to come: without configured ones, two instances on the CPU."""
    return config.get("instance_group") or [{"kind": "KIND_CPU", "count": 2}]
