"""Changed code over what was preloaded: what stays, what does not and why, and who may die."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from functools import partial
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


def _has_ended(process: psutil.Process) -> bool:
    return not process.is_running()


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

    def load(self, error: str = "") -> None:
        said = self.server.control_model("load", self.name)
        assert (error in said, bool(error)) == (True, bool(said)), said

    def status(self) -> Any:
        return json.loads(ctl(self.server, "status", "--json").stdout)

    def template(self) -> psutil.Process:
        rows = [r for r in self.status()["processes"] if r["role"] == "template"]
        return psutil.Process(next(r["pid"] for r in rows if r["model"] == self.name))

    def kept(self) -> Any:
        return next(r for r in self.status()["kept"] if r["model"] == self.name)


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
    kept = "TritonPythonModel.layer, TritonPythonModel.weights"
    expected = {"model": model.name, "version": 1, "is_kept": True, "text": kept}
    assert expected == model.kept()
    shown = ctl(model.server, "status", model.name).stdout
    assert re.search(rf"{model.name}\t1\tyes\t{kept}", shown)
    assert f"its last load has kept {kept}" in ctl(model.server, "explain", model.name).stdout

    # a fork of a fork is as good
    for text in ("third", "fourth"):
        before = model.template()
        model.edit(f'f"{model.ask()[0]}', f'f"{text}')
        model.load()
        assert [text, by, "9", model.name, "two"] == model.ask()
        eventually(partial(_has_ended, before), 60)
    eventually(lambda: len(model.server.stub_pids(model.name)) == 2, 60)


@pytest.mark.parametrize(
    ("before", "after", "file", "why"),
    [
        ("scale = 1", "scale = 2", "model.py", ""),
        ("CACHE = {}", 'CACHE = {"a": 1}', "model.py", "CACHE in model.py changed, and preload"),
        ("np.uint8)", "np.uint8) * 1", "model.py", "load in model.py changed, and preload uses it"),
        (
            "self._name = name",
            "self._name = 'x' or name",
            "layers.py",
            "Layer in layers.py changed",
        ),
        ('"is preloaded"', '"is preloaded again"', "model.py", "preload changed"),
        ("a b", "a b c", "words.txt", "words.txt changed"),
    ],
)
def test_a_change_of_what_preload_depends_on_is_loaded_anew(
    model: Model, before: str, after: str, file: str, why: str
) -> None:
    by = model.ask()[1]

    model.edit(before, after, file)
    model.edit('f"first', 'f"second')
    model.load()

    kept = model.kept()
    assert (not why, why in kept["text"]) == (kept["is_kept"], True)
    assert ("second", not why) == (model.ask()[0], model.ask()[1] == by)
    eventually(lambda: "is preloaded again: " + why in model.server.log_text() or not why, 60)


@pytest.mark.parametrize(
    ("before", "after", "error"),
    [
        ("import layers", "import layers, nothing_of_this_name", "nothing_of_this_name"),
        ("scale = 1", "scale = (1", "was never closed"),
        ("scale = 1", "def initialize(self, args): raise OSError('no room')", "no room"),
    ],
)
def test_an_error_in_the_edit_changes_nothing(
    model: Model, before: str, after: str, error: str
) -> None:
    answer, template = model.ask(), model.template()

    model.edit(before, after)
    model.load(error)
    assert answer == model.ask()
    assert template == model.template()

    # the next try has the old template
    model.edit(after, before)
    model.edit('f"first', 'f"second')
    model.load()
    assert ["second", *answer[1:]] == model.ask()
    eventually(lambda: not template.is_running(), 60)


def test_a_dead_template_leaves_an_ordinary_load(model: Model) -> None:
    by = model.ask()[1]
    template = model.template()
    template.kill()
    eventually(lambda: not template.is_running(), 60)

    model.edit('f"first', 'f"second')
    model.load()

    assert "second" == model.ask()[0]
    assert by != model.ask()[1]
    assert "died" in model.kept()["text"]


def test_the_next_version_and_a_changed_configuration_keep_as_well(model: Model) -> None:
    by = model.ask()[1]
    second = model.directory.with_name("2")
    shutil.copytree(model.directory, second)  # with the times of the files
    (second / "model.py").write_text(CODE.replace('f"first', 'f"second'))
    model.load()
    assert ["second", by] == model.ask()[:2], model.status()["kept"]

    model.directory = second
    config = second.parent / "config.pbtxt"
    config.write_text(config.read_text() + "max_batch_size: 0 response_cache { enable: false }")
    model.edit('f"second', 'f"third')
    model.load()
    assert ["third", by] == model.ask()[:2]

    ctl(model.server, "reload", model.name, "--force")
    assert "third" == model.ask()[0]
    assert by != model.ask()[1]


def test_a_library_that_refuses_to_be_told_twice_is_loaded_by_a_new_process(model: Model) -> None:
    once = "import sys\nassert not hasattr(sys, 'registered')\nsys.registered = True\nimport layers"
    model.edit("import layers", once)
    model.load()
    by = model.ask()[1]

    model.edit('f"first', 'f"second')
    model.load()

    assert "second" == model.ask()[0]
    assert by != model.ask()[1]
    assert "its code raised in a copy of its template: AssertionError" in model.kept()["text"]


def test_shared_values_of_preload_stay_and_those_of_an_import_are_made_again(model: Model) -> None:
    shared = "layers.Layer(pb_utils.shared('named', lambda: args['model_name']))"
    model.edit('layers.Layer(args["model_name"])', shared)
    model.edit("import layers", "import layers\nword = pb_utils.shared('word', lambda: 'old')")
    model.edit("{layers.WORD}", "{word} {pb_utils.shared('named', None)}")
    model.load()
    _, by, *_, word, name = model.ask()
    assert ("old", model.name) == (word, name)

    model.edit("'old'", "'new'")
    model.load()

    assert (by, "new", model.name) == (model.ask()[1], *model.ask()[-2:])
    assert "shared('named')" in model.kept()["text"]


@pytest.mark.addons
def test_a_canary_has_the_weights_of_the_version_beside_it(model: Model) -> None:
    by = model.ask()[1]
    second = model.directory.with_name("2")
    shutil.copytree(model.directory, second)  # with the times of the files
    (second / "model.py").write_text(CODE.replace('f"first', 'f"second'))

    ctl(model.server, "canary", "start", model.name, "2", "--weight=100")
    eventually(lambda: model.ask()[:2] == ["second", by], 60)

    assert [2] == [r["version"] for r in model.status()["kept"] if r["is_kept"]]
    ctl(model.server, "canary", "abort", model.name)
