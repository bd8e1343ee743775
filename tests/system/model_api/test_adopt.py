"""Changed code of instances that are threads: what adopt() hands over, and what happens if not."""

from __future__ import annotations

import json
import random
import re
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import psutil
import pytest

from tests.standard.ctl.system.commands import OPTION, ctl
from tests.support.scripted import string_parameter
from tests.support.server import Server, tensor
from tests.support.waiting import eventually

pytestmark = [pytest.mark.system, pytest.mark.server()]

CONFIG = """
backend: "python"
input { name: "IN" data_type: TYPE_INT32 dims: 1 }
output { name: "TEXT" data_type: TYPE_STRING dims: 1 }
instance_group { count: 2 kind: KIND_CPU }
""" + string_parameter("INSTANCES", "threads")

#: Answers the text of its code, its process, its weights by their identity, and a helper's word.
CODE = """
import os, time
import numpy as np
import triton_python_backend_utils as pb_utils
import helper

class TritonPythonModel:
    def initialize(self, args):
        self.name, self.weights = args["model_instance_name"], np.ones(1 << 20, np.uint8)
        pb_utils.Logger.log_info(f"{self.name} is initialized")

    def adopt(self, old):
        self.name, self.weights = old.name, old.weights

    def execute(self, requests):
        time.sleep(0.01)
        own = f"{os.getpid()} {os.getpid()}:{id(self.weights)}"
        text = f"first {own} {self.weights[:9].sum()} {helper.WORD}"
        out = np.array([text], object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("TEXT", out)]) for _ in requests]

    def finalize(self):
        self.weights[:] = 0
        pb_utils.Logger.log_info(f"{self.name} is finalized")
"""


class Model:
    def __init__(self, server: Server, name: str, config: str = "", code: str = CODE) -> None:
        self.server, self.name = server, name
        self.directory = server.write_model(name, config or CONFIG, code) / "1"
        (self.directory / "helper.py").write_text("WORD = 'one'")
        self.load()

    def ask(self) -> list[str]:
        status, answer = self.server.infer_json(self.name, tensor("IN", "INT32", [1]))
        assert status == 200, answer
        return str(answer["outputs"][0]["data"][0]).split()

    def both(self) -> dict[str, list[str]]:
        """Return an answer of each instance, by the identity of its weights."""
        answers = dict[str, list[str]]()

        def has_all() -> bool:
            with ThreadPoolExecutor(4) as pool:
                answers.update({each[2]: each for each in pool.map(lambda _: self.ask(), range(4))})
            return len(answers) == 2

        eventually(has_all, 60)
        return answers

    def edit(self, before: str, after: str, file: str = "model.py") -> None:
        path = self.directory / file
        assert before in path.read_text()
        draft = path.with_suffix(".draft")
        draft.write_text(path.read_text().replace(before, after))
        draft.replace(path)

    def load(self, error: str = "") -> None:
        said = self.server.control_model("load", self.name)
        assert (error in said, bool(error)) == (True, bool(said)), said

    def status(self) -> Any:
        return json.loads(ctl(self.server, "status", "--json").stdout)

    def hosts(self) -> set[int]:
        """Return the pids of the processes that have the instances, as the status has them."""
        rows = [r for r in self.status()["processes"] if r["role"] == "template"]
        return {r["pid"] for r in rows if r["model"] == self.name}

    def kept(self) -> tuple[bool, str]:
        row = next(r for r in self.status()["kept"] if r["model"] == self.name)
        return row["is_kept"], row["text"]

    def logged(self, text: str) -> int:
        return self.server.log_text().count(f"{text}")


@contextmanager
def asked_all_the_time(model: Model) -> Iterator[list[list[str]]]:
    """Send requests, one after the other; yields the answers. None may fail."""
    answers, failures, is_over = list[list[str]](), list[str](), threading.Event()

    def ask() -> None:
        while not is_over.is_set():
            status, said = model.server.infer_json(model.name, tensor("IN", "INT32", [1]))
            if status != 200:
                failures.append(f"{said}")
                continue
            answers.append(str(said["outputs"][0]["data"][0]).split())

    callers = [threading.Thread(target=ask) for _ in range(3)]
    for caller in callers:
        caller.start()
    try:
        yield answers
    finally:
        is_over.set()
        for caller in callers:
            caller.join()
    assert not failures


@pytest.fixture
def model(server: Server, request: pytest.FixtureRequest) -> Iterator[Model]:
    name = re.sub(r"\W", "_", request.node.name)[-50:]
    model = Model(server, name)
    yield model
    pids = model.hosts()
    server.control_model("unload", name)
    eventually(lambda: not any(psutil.pid_exists(pid) for pid in pids), 60)


def test_changed_code_adopts_the_objects_of_the_earlier_instances(model: Model) -> None:
    before = model.both()
    (pid,) = model.hosts()

    for old, new in (("first", "second"), ("second", "third"), ("third", "fourth")):
        model.edit(f'f"{old}', f'f"{new}')
        model.edit("WORD = '", f"WORD = '{new}-", "helper.py")
        model.load()
        answers = model.both()
        assert before.keys() == answers.keys()
        assert {(new, str(pid), "9")} == {(a[0], a[1], a[3]) for a in answers.values()}
        assert {f"{new}-"} == {a[4][: len(new) + 1] for a in answers.values()}
        assert {pid} == model.hosts()
        assert (True, "what adopt() has taken from the earlier instances") == model.kept()

    assert "its last load has kept what adopt()" in ctl(model.server, "explain", model.name).stdout
    assert 2 == model.logged(f"{model.name}_0_0 is initialized") + model.logged(
        f"{model.name}_0_1 is initialized"
    )
    assert 0 == model.logged(f"{model.name}_0_0 is finalized")


def test_no_request_fails_while_code_is_replaced(model: Model) -> None:
    before = model.both()

    with asked_all_the_time(model) as answers:
        for number in range(5):
            model.edit('f"first', f'f"first{number}-first')
            model.load()

    assert ({*before}, {"9"}) == ({a[2] for a in answers}, {a[3] for a in answers})


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("= old.name, old", "= old.name, old.nothing", "'nothing'"),
        ("import helper", "import helper\nassert not len(helper.WORD) > 3", ""),
        ("def adopt(self, old)", "def take(self, old)", "no method adopt()"),
    ],
)
def test_what_cannot_be_adopted_is_loaded_by_a_new_process(
    model: Model, before: str, after: str, why: str
) -> None:
    (pid,), weights = model.hosts(), model.both()

    model.edit(before, after)
    model.edit('f"first', 'f"second')
    model.load()

    is_kept, text = model.kept()
    answers = model.both()
    assert (not why, why in text) == (is_kept, True)
    assert {("second", "9")} == {(a[0], a[3]) for a in answers.values()}
    assert (not why) == (answers.keys() == weights.keys())
    eventually(lambda: (not why) == (model.hosts() == {pid} and psutil.pid_exists(pid)), 60)


@pytest.mark.parametrize(
    ("before", "after", "error"),
    [
        ("import helper", "import helper, nothing_of_this_name", "nothing_of_this_name"),
        ("import helper", "import (helper", "invalid syntax"),
        (
            "    def adopt(self, old):",
            "    def __init__(self): raise OSError('no room')\n    def adopt(self, old):",
            "no room",
        ),
    ],
)
def test_an_error_in_the_edit_changes_nothing(
    model: Model, before: str, after: str, error: str
) -> None:
    (pid,), answers = model.hosts(), model.both()

    model.edit(before, after)
    model.load(error)
    assert (answers, {pid}) == (model.both(), model.hosts())

    # the next try adopts
    model.edit(after, before)
    model.edit('f"first', 'f"second')
    model.load()
    assert {"second": answers.keys()} == {model.ask()[0]: model.both().keys()}


def test_an_adopting_process_that_is_killed_leaves_a_new_one(model: Model) -> None:
    (pid,) = model.hosts()
    gate = model.directory / "gate"
    waits = f"""
        open({str(gate)!r}, "w").close()
        time.sleep(600)"""
    model.edit("    def adopt(self, old):", f"    def adopt(self, old):{waits}")
    model.edit('f"first', 'f"second')
    load = threading.Thread(target=model.load)
    load.start()
    eventually(gate.exists, 60)

    psutil.Process(pid).kill()
    load.join()

    assert {"second"} == {answer[0] for answer in model.both().values()}
    is_kept, text = model.kept()
    assert (False, True) == (is_kept, "killed by SIGKILL" in text)
    assert pid not in model.hosts()


def test_an_adopted_process_that_is_killed_starts_again_with_the_code_of_now(model: Model) -> None:
    (pid,) = model.hosts()
    model.edit('f"first', 'f"second')
    model.load()
    assert {pid} == model.hosts()

    psutil.Process(pid).kill()

    eventually(lambda: model.hosts() and pid not in model.hosts(), 60)
    eventually(
        lambda: model.server.infer_json(model.name, tensor("IN", "INT32", [1]))[0] == 200, 60
    )
    answers = model.both()
    assert {"second"} == {answer[0] for answer in answers.values()}

    # and that is adopted from in its turn
    model.edit('f"second', 'f"third')
    model.load()
    assert answers.keys() == model.both().keys()


def test_an_instance_without_a_predecessor_is_preloaded_and_initialized(model: Model) -> None:
    preload = """
    @staticmethod
    def preload(args):
        pb_utils.Logger.log_info(f"{args['model_name']} is preloaded")

    def adopt(self, old):"""
    model.edit("\n    def adopt(self, old):", preload)
    model.load()
    said = f"{model.name} is preloaded"
    assert 0 == model.logged(said)

    ctl(model.server, "scale", model.name, "3")

    eventually(lambda: model.logged(f"{model.name}_0_2 is initialized") == 1, 60)
    assert 1 == model.logged(said)


@pytest.mark.server(own=True, options=["--model-control-mode=explicit", OPTION])
@pytest.mark.parametrize("mode", ["threads", "forks"])
def test_kills_at_any_time_of_a_reload_leave_nothing(
    server: Server, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """25 reloads, each with a kill of a process of the model, then the end of the model."""
    monkeypatch.setattr(sys.modules[__name__], "CONFIG", CONFIG.replace("threads", mode))
    model, chance = Model(server, f"killed_{mode}"), random.Random(5)
    own, killed = psutil.Process(server.pid), 0

    def pids() -> set[int]:
        rows = model.status()["processes"]
        return {r["pid"] for r in rows if r.get("model") == model.name and r["pid"]}

    for number in range(25):
        victims = eventually(lambda: [psutil.Process(pid) for pid in pids()], 60)
        model.edit('f"first', f'f"first{number}-first')
        load = threading.Thread(target=server.control_model, args=("load", model.name))
        load.start()
        load.join(chance.random() * 0.1)  # a reload takes that long
        victim = chance.choice(victims)
        with suppress(psutil.NoSuchProcess):
            victim.kill()
            killed += 1
        load.join()
        server.control_model("load", model.name)
        eventually(lambda: server.request_json(f"/v2/models/{model.name}/ready")[0] == 200, 60)
        eventually(model.hosts, 60)

    assert killed > 12
    assert model.ask()[0].startswith("first24-")
    children = {child.pid for child in own.children()}
    last = pids()
    assert last <= children
    server.control_model("unload", model.name)

    eventually(lambda: not pids(), 60)
    eventually(lambda: not {pid for pid in last if psutil.pid_exists(pid)}, 60)
    names = [each.cmdline() for each in own.children() if each.status() != psutil.STATUS_ZOMBIE]
    assert not [words for words in names if model.name in " ".join(words)]
    eventually(lambda: not _segments(server, model.name), 60)


def _segments(server: Server, model: str) -> list[Any]:
    """Return the segments that a process of the model has, as the status has them."""
    rows = json.loads(ctl(server, "status", "--json").stdout)["held"]
    return [row for row in rows if model in json.dumps(row)]
