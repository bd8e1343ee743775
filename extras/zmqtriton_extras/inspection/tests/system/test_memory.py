"""Memory of models that a real server serves, by the operator's command."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.standard.ctl.system.commands import OPTION, ctl
from tests.standard.tools.advice.world import World, code_of
from tests.standard.tools.system import broken_models as broken
from tests.support.server import Server
from zmqtriton_extras.inspection.tests.advice.models_at_work import clients

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(options=[OPTION], frontends=()),
]
CODE = code_of(
    "    def initialize(self, args):\n        self.cache = []\n\n"
    + broken.executing("self.cache.append(np.ones(20000))  # leaks")
)
LINE = next(n for n, text in enumerate(CODE.splitlines(), 1) if text.endswith("# leaks"))


def prepare(server: Server) -> None:
    World(server, "leaks").write(broken.CONFIG, CODE)
    World(server, "forks").write(
        broken.CONFIG + broken.parameter("INSTANCES", "forks"), CODE.replace("# leaks", "")
    )


@contextmanager
def in_use(server: Server, model: str) -> Iterator[None]:
    with contextmanager(clients(1))(World(server, model)):
        yield


def test_of_a_leak_the_line_and_its_holder_are_named(server: Server) -> None:
    with in_use(server, "leaks"):
        shown = ctl(server, "memory", "leaks", "--between", "2s")
        written = ctl(
            server, "memory", "leaks", "--between", "1500ms", "--instance", "0", "-o", "json"
        )

    assert 0 == shown.exit_code, shown.output
    assert f"are from 1/model.py:{LINE}, and `TritonPythonModel.cache` has grown most" in (
        shown.output
    )
    seen = json.loads(written.output)
    assert (LINE, True) == (seen["lines"][0]["line"], seen["lines"][0]["is_own"])
    assert "TritonPythonModel.cache" == seen["holders"][0]["name"]
    assert seen["array_bytes"][0] < seen["array_bytes"][1]
    assert "memory 'leaks' {" in server.log_text()


def test_forks_are_measured(server: Server) -> None:
    with in_use(server, "forks"):
        shown = ctl(server, "memory", "forks", "--between", "2s")

    assert f"are from 1/model.py:{LINE}" in shown.output


def test_a_model_that_keeps_nothing_has_no_line(server: Server) -> None:
    shown = ctl(server, "memory", "leaks", "--between", "1s")

    assert 0 == shown.exit_code, shown.output
    assert f"model.py:{LINE}" not in shown.output


def test_an_instance_is_looked_at_once_at_a_time(server: Server) -> None:
    first = threading.Thread(target=ctl, args=(server, "memory", "leaks", "--between", "5s"))
    first.start()
    try:
        answers: list[str] = []
        while not any("is being measured already" in text for text in answers):
            shown = ctl(server, "profile", "leaks", "--seconds", "0.1")
            is_over = not first.is_alive()  # before the answer is looked at: it may be the last
            answers.append(shown.output)
            assert not is_over or "already" in shown.output, answers
    finally:
        first.join()


@pytest.mark.parametrize("time", ["0s", "-1", "five", "1h"])
def test_a_time_that_is_none_is_refused(server: Server, time: str) -> None:
    shown = ctl(server, "memory", "leaks", "--between", time)

    assert 2 == shown.exit_code
    assert "must be a time" in shown.output
