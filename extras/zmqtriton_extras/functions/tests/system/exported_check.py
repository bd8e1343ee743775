"""Calls an exported function in a process that has the stub, and nothing else of the server."""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def call(directory: str) -> Any:
    import numpy as np

    from zmqtriton_floor import wire
    from zmqtriton_stub import instance
    from zmqtriton_stub.api import inference, tensor
    from zmqtriton_stub.model import PythonModel, import_class

    path = os.path.join(directory, "1", "model.py")
    name = os.path.basename(directory)
    config = json.dumps({"name": name, "backend": "python", "output": [{"name": "output"}]})
    load = wire.LoadModel("m_0", name, 1, "CPU", 0, directory, path, config, 1)
    here = instance.current = instance.StubInstance(load, lambda message: None)
    model = PythonModel(load, import_class(load))
    assert model.complete() == ""
    model.initialize(config, here)
    inputs = [tensor.Tensor("image", np.array([[7]]))]
    answers: Any = model.execute([inference.InferenceRequest("", 0, inputs, [], name)])
    return answers[0].output_tensors()[0].as_numpy().tolist()


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    sys.stdout.write(f"{call(sys.argv[2])}\n")
