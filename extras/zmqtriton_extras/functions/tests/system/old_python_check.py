"""Calls functions as a stub does; run by each old Python, which has nothing of the server.

Takes the paths of `stub/` and `extras/`, and a directory for a model.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

SOURCE = """
import dataclasses
import enum
from typing import Any, Dict, List, Literal, NamedTuple, Optional, TypedDict
import numpy as np
from zmqtriton import Array, Failed, model

class Color(enum.Enum):
    red = "red"

class Pair(TypedDict):
    left: float
    right: Optional[str]

@dataclasses.dataclass
class Point:
    x: int
    pairs: List[Pair]
    color: Color = Color.red
    kind: Literal["a", "b"] = "a"
    more: Dict[str, Any] = dataclasses.field(default_factory=dict)
    below: "Optional[Point]" = None

class Answer(NamedTuple):
    text: List[str]
    size: List[int]

@model(batch=4)
class Caption:
    def __call__(self, text: List[str], rows: Array["FP32", -1, 2], words: int = 2) -> Answer:
        return Answer(text, [len(each) + int(row.sum()) for each, row in zip(text, rows)])

@model
def points(points: List[Point], grid: List[List[int]]) -> List[Point]:
    points[0].more["seen"] = [points[0].color, float("nan"), np.float32(2), {3}, 2 ** 70]
    return points
"""
#: A hint that needs pydantic, alone in its file.
REFUSED = """
import datetime
from typing import List
from zmqtriton import model

@model
def day(day: List[datetime.date]) -> str:
    return ""
"""


def text_of(kind: Any, call: Any) -> str:
    """The text of the error that a call raises."""
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__} is raised")


def check_documents(directory: str) -> None:
    """Check JSON by the standard library alone."""
    from zmqtriton_extras.functions.backend import model, signature
    from zmqtriton_extras.functions.backend.kinds import HintError, MismatchError

    def signature_of(name: str, source: str) -> Any:
        path = os.path.join(directory, f"{name}.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(source)
        module = model.import_file(path)
        return getattr(module, name), signature.read(getattr(module, name))

    function, found = signature_of("points", SOURCE)
    kind = found.parameters[0].kind
    document = [{"x": 2**70, "pairs": [{"left": 1, "right": None}], "below": {"x": 1, "pairs": []}}]
    value = kind.adapter.read(document)
    assert type(value[0].below).__name__ == "Point", value
    assert value[0].pairs[0]["left"] == 1.0, value
    text = found.outputs[0].kind.encode(function(value, [[1]]))[0]
    answer = json.loads(text)
    assert answer[0]["x"] == 2**70, answer
    assert answer[0]["more"] == {"seen": ["red", None, 2.0, [3], 2**70]}, answer
    wrong = [{"x": "a", "pairs": [{"left": 1}], "color": "blue", "new": 1}, 3]
    text = text_of(MismatchError, lambda: kind.adapter.read(wrong))
    places = [line.partition(": ")[0] for line in text.split("\n")]
    assert places == ["0.x", "0.pairs.0.right", "0.color", "0.'new'", "1"], places
    text = text_of(HintError, lambda: signature_of("day", REFUSED))
    assert "date needs pydantic in the model's Python: pip install pydantic" in text, text


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
    check_documents(directory)


if __name__ == "__main__":
    stub, extras, model_directory = sys.argv[1:]
    sys.path.insert(0, stub)
    check(model_directory)
    assert extras not in sys.path
    sys.stdout.write("as expected\n")
