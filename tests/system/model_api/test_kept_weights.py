"""Changed code over what was preloaded: what stays, what does not and why, and who may die."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.standard.ctl.system.commands import ctl
from tests.support.scripted import string_parameter
from tests.support.server import Server, tensor
from tests.support.waiting import eventually

pytestmark = [pytest.mark.system, pytest.mark.server()]

MEGABYTES = 20
CONFIG = """
backend: "python"
input { name: "IN" data_type: TYPE_INT32 dims: 1 }
output { name: "TEXT" data_type: TYPE_STRING dims: 1 }
instance_group { count: 2 kind: KIND_CPU }
""" + string_parameter("INSTANCES", "forks")

#: Answers the text of its code, the pid that has preloaded it, and a sum of the weights.
CODE = """
import os
import numpy as np
import triton_python_backend_utils as pb_utils
import layers

SIZE = MEGABYTES << 20
CACHE = {}

def load(size):
    return np.ones(size, np.uint8)

class TritonPythonModel:
    scale = 1

    @staticmethod
    def preload(args):
        print("is preloaded", flush=True)
        CACHE["by"] = os.getpid()
        TritonPythonModel.weights = load(SIZE)
        TritonPythonModel.layer = layers.Layer(args["model_name"])

    def execute(self, requests):
        assert isinstance(self.layer, layers.Layer)
        text = f"first {CACHE['by']} {self.weights[:9].sum()} {self.layer.name()} {layers.WORD}"
        out = np.array([text.encode()], object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("TEXT", out)]) for _ in requests]
""".replace("MEGABYTES", str(MEGABYTES))
LAYERS = """
WORD = "one"

class Layer:
    def __init__(self, name):
        self._name = name

    def name(self):
        return self._name
"""


@pytest.fixture
def model(server: Server, request: pytest.FixtureRequest) -> Iterator[Model]:
    name = re.sub(r"\W", "_", request.node.name)[:60]
    server.write_model(name, CONFIG, CODE)
    directory = server.repository / name / "1"
    (directory / "layers.py").write_text(LAYERS)
    (directory / "words.txt").write_text("a b")
    server.control_model("load", name)
    yield Model(server, name, directory)
    server.control_model("unload", name)


class Model:
    def __init__(self, server: Server, name: str, directory: Path) -> None:
        self.server, self.name, self.directory = server, name, directory

    def ask(self) -> list[str]:
        status, answer = self.server.infer_json(self.name, tensor("IN", "INT32", [1]))
        assert status == 200, answer
        return str(answer["outputs"][0]["data"][0]).split()

    def edit(self, before: str, after: str, file: str = "model.py") -> None:
        path = self.directory / file
        assert before in path.read_text()
        path.write_text(path.read_text().replace(before, after))

    def load(self) -> None:
        self.server.control_model("load", self.name)

    def status(self) -> Any:
        return json.loads(ctl(self.server, "status", "--json").stdout)

    def template(self) -> psutil.Process:
        rows = [r for r in self.status()["processes"] if r["role"] == "template"]
        return psutil.Process(next(r["pid"] for r in rows if r["model"] == self.name))

    def kept(self) -> Any:
        return self.status()["kept"][self.name]["1"]


def test_an_edit_of_execute_keeps_what_was_preloaded(model: Model) -> None:
    first, by, total, *_ = model.ask()
    assert ("first", "9") == (first, total)
    template = model.template()
    assert template.pid == int(by)

    model.edit('f"first', 'f"second')
    model.edit('"one"', '"two"', "layers.py")
    model.load()

    assert ["second", by, "9", model.name, "two"] == model.ask()
    assert model.template().pid != template.pid
    eventually(lambda: not template.is_running(), 60)
    assert {"is_kept": True, "text": model.kept()["text"]} == model.kept()
    assert "TritonPythonModel.weights" in model.kept()["text"]

    # a fork of a fork is as good
    for text in ("third", "fourth"):
        before = model.template()
        model.edit(f'f"{model.ask()[0]}', f'f"{text}')
        model.load()
        assert [text, by, "9", model.name, "two"] == model.ask()
        eventually(lambda: not before.is_running(), 60)
    eventually(lambda: len(model.server.stub_pids(model.name)) == 2, 60)
