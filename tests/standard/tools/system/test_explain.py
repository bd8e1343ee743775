"""`zmqtriton-ctl explain` about models that are broken in one way each, on one server."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from typing import Any

import pytest

from tests.standard.ctl.system.commands import OPTION, ctl
from tests.standard.tools.system import broken_models
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.long(
        "standard/tools/system/test_server_trouble.py::test_models_that_raise_die_or_fail_are_explained",
        "standard/tools/explaining/test_findings.py::test_each_reason_of_the_server_is_explained",
        "standard/tools/explaining/test_findings.py::test_a_full_queue_a_quota_and_a_deadlock_are_told",
        "standard/tools/explaining/test_findings.py::test_what_stands_still_is_told_with_its_place",
        "standard/tools/explaining/test_findings.py::test_a_model_that_was_never_loaded_and_one_that_still_loads",
    ),
    pytest.mark.system,
    pytest.mark.server(
        options=[
            "--model-control-mode=explicit",
            "--load-on-demand",
            "--model-load-thread-count=8",
            "--exit-on-error=false",
            "--strict-readiness=false",
            "--exit-timeout-secs=1",
            OPTION,
            "--model-repository=@DIRECTORY@/second",
            *(f"--load-model={name}" for name in broken_models.MODELS if name != "loads_long"),
        ],
        frontends=("metrics",),
    ),
]
BODY = {"inputs": [{"name": "IN", "shape": [1], "datatype": "FP32", "data": [1]}]}


def prepare(server: Server) -> None:
    broken_models.write(server.repository)
    broken_models.write(server.directory.parent / "second", ["doubled"])


def models(server: Server) -> str:
    """Return the states of all models, but of one that loads for ever."""
    _, entries = server.request_json("/v2/repository/index", {})
    return " ".join(e.get("state", "") for e in entries if e["name"] != "loads_long")


def findings(server: Server, *words: str) -> dict[str, list[Any]]:
    """By model, the most important first."""
    done = ctl(server, "explain", *words, "-o", "json")
    assert done.exit_code == 0, done.stderr
    by_model: dict[str, list[Any]] = {}
    for one in json.loads(done.stdout):
        by_model.setdefault(one["model"], []).append(one)
    return by_model


def tells(server: Server, model: str, cause: str, *, is_asked: bool = False) -> None:
    """Wait until it does: what is told comes from logs and counts, which follow the answers."""

    def is_told() -> bool:
        if is_asked:
            ask(server, model)
        return cause in findings(server, model)[model][0]["text"]

    eventually(is_told, 60, f"{model}: {cause}")


def ask(server: Server, model: str, within_s: float = 60.0) -> int:
    """Return the status of the answer; 0 if there is none in time."""
    with suppress(OSError):
        path = f"/v2/models/{model}/infer"
        return server.request_json(path, BODY, within_s=within_s)[0]
    return 0


@pytest.fixture(scope="module")
def waiting(server: Server) -> None:
    """Requests that are not answered while the server runs; they end with it."""
    models = ("throttled", "throttled", "hanging", "crowded", "loads_long")
    for model in models:
        threading.Thread(target=ask, args=(server, model, 600.0), daemon=True).start()


NOT_READY = {
    "backend_unknown": "there is no backend 'nonsense'",
    "chain": "its member 'member' is not ready: it raises OSError: the disk is gone",
    "chain_misspelt": "its member 'workss' does not exist; did you mean 'works'?",
    "config_wrong": "config.pbtxt, line 5",
    "crashes": "it crashes in native code, killed by SIGSEGV",
    "doubled": "two repositories have a model of this name",
    "environment_missing": "its environment does not exist: /no/such.tar.gz",
    "exits": "its process ends itself, with status 3",
    "file_missing": "model.py is missing",
    "gpu_missing": "it asks for a GPU that this machine does not have",
    "import_missing": "cannot import 'nothing_here' (model.py, line 4)",
    "loads_slowly": "loading took longer than max_load_seconds, 1 s",
    "member": "it raises OSError: the disk is gone",
    "name_wrong": "its config.pbtxt calls it 'another'",
    "raises": "it raises ValueError: no weights at /data/weights.pt",
    "syntax_wrong": "its code cannot be read: SyntaxError",
    "too_many": "it asks for 900000 instances",
}
#: Those that requests, and what is loaded meanwhile, bring into trouble.
TROUBLED_LATER = {
    "asks_itself",
    "crowded",
    "dies",
    "fails",
    "hanging",
    "hungry",
    "loads_long",
    "throttled",
    "misnames",
    "the machine",
    "works",
}


@pytest.fixture(scope="module")
def badly_loaded(server: Server) -> None:
    """The last load of the model `works` has failed."""
    (server.repository / "works" / "1" / "model.py").write_text("def broken(:")
    assert server.control_model("load", "works")


@pytest.fixture(scope="module")
def overview(server: Server, badly_loaded: None) -> dict[str, list[Any]]:
    """Findings in all models; a process looks into each that is not ready."""
    eventually(lambda: "LOADING" not in models(server), 60, "the end of all loads")
    return findings(server)


@pytest.mark.row("L12")
def test_each_model_that_is_not_ready_is_explained(overview: dict[str, list[Any]]) -> None:
    causes = {model: all_[0]["text"] for model, all_ in overview.items()}
    assert NOT_READY.keys() == causes.keys() - TROUBLED_LATER
    assert {} == {m: causes[m] for m in NOT_READY if NOT_READY[m] not in causes[m]}
    for all_ in overview.values():
        assert all_[0]["advice"]
        assert all_[0]["commands"]


@pytest.mark.row("L12")
def test_a_model_that_dies_fails_or_calls_itself_is_explained(server: Server) -> None:
    for _ in range(7):
        assert 503 == ask(server, "dies")
    assert 500 == ask(server, "fails") == ask(server, "misnames")
    ask(server, "asks_itself")
    ask(server, "hungry")

    tells(server, "dies", "given up after", is_asked=True)
    tells(server, "fails", "KeyError: 'no such column'")
    tells(
        server, "misnames", "asked for 'INPUT', which its configuration does not name; it names IN"
    )
    tells(server, "asks_itself", "deadlock")
    tells(server, "hungry", "max_memory_bytes is")


@pytest.mark.row("L12")
def test_a_model_that_is_held_up_is_explained(server: Server, waiting: None) -> None:
    def full() -> bool:
        return ask(server, "crowded", 1.0) == 503

    eventually(full, 60, "the queue is full")
    tells(server, "crowded", "refused because too many were unanswered")
    tells(server, "hanging", "it hangs or is slow (model.py, line 8, in execute): 1 request")
    tells(server, "throttled", "its quota holds it back")
    tells(server, "loads_long", "it is still loading (model.py, line 8, in initialize), since")


@pytest.mark.row("L12")
def test_a_model_whose_last_load_failed_is_explained_unasked(
    overview: dict[str, list[Any]],
) -> None:
    text = overview["works"][0]["text"]

    assert text.startswith("ready, but the last load failed, the earlier version serves")
