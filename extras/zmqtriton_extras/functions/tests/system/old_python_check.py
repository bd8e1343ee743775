"""Calls functions as a stub does; run by each old Python, which has nothing of the server.

Takes the paths of `stub/` and `extras/`, and a directory for a model.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

SOURCE = """
from typing import List, NamedTuple, Optional
from zmqtriton import Array, Failed, model

class Answer(NamedTuple):
    text: List[str]
    size: List[int]

@model(batch=4)
class Caption:
    def __call__(self, text: List[str], rows: Array["FP32", -1, 2], words: int = 2) -> Answer:
        return Answer(text, [len(each) + int(row.sum()) for each, row in zip(text, rows)])
"""


def check(directory: str) -> None:
    import numpy as np

    from zmqtriton_floor import wire
    from zmqtriton_stub import instance
    from zmqtriton_stub.api import inference, tensor
    from zmqtriton_stub.model import PythonModel, import_class

    os.makedirs(os.path.join(directory, "1"))
    with open(os.path.join(directory, "1", "model.py"), "w", encoding="utf-8") as file:
        file.write(SOURCE)
    path = os.path.join(sys.argv[2], "zmqtriton_extras", "functions", "backend", "model.py")
    config = json.dumps({"name": "caption", "backend": "functions"})
    package = "zmqtriton_extras.functions.backend"
    load = wire.LoadModel(
        "m_0", "caption", 1, "CPU", 0, directory, path, config, 1, package=package
    )  # fmt: skip
    here = instance.current = instance.StubInstance(load, lambda message: None)
    model = PythonModel(load, import_class(load))
    completed = model.complete()
    here.configure(completed)
    model.initialize(completed, here)
    assert json.loads(completed)["max_batch_size"] == 4
    inputs = [
        tensor.Tensor("text", np.array([[b"abc"], [b"d"]], np.object_)),
        tensor.Tensor("rows", np.ones((2, 2), np.float32)),
    ]
    request = inference.InferenceRequest("", 0, inputs, [], "caption")
    answers: Any = model.execute([request])
    [answer] = answers
    arrays = {each.name(): each.as_numpy().tolist() for each in answer.output_tensors()}
    assert arrays == {"text": [[b"abc"], [b"d"]], "size": [[5], [3]]}, arrays


if __name__ == "__main__":
    stub, extras, model_directory = sys.argv[1:]
    sys.path.insert(0, stub)
    check(model_directory)
    assert extras not in sys.path
    sys.stdout.write("as expected\n")
