"""Affinity of a running server: equal requests reach one instance, by each protocol."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient

from tests.standard.ctl.system.commands import ctl
from tests.support.scraping import sum_series
from tests.support.scripted import add_model, string_parameter
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(),
]

WHO = 'return [reply(self.args["model_instance_name"])]'
_SESSIONS = [f"session-{number}" for number in range(24)]


def prepare(server: Server) -> None:
    for name, rule in (
        ("by_header", "header:X-Session"),
        ("by_parameter", "parameter:lora"),
        ("by_prefix", "input:ARGUMENT:6"),
    ):
        add_model(server, "scripted", name, string_parameter("AFFINITY", rule))
        _choose_count(server, name)


def _choose_count(server: Server, name: str) -> None:
    path = server.repository / name / "config.pbtxt"
    path.write_text(path.read_text().replace("count: 1", "count: 3"))


def who(server: Server, model: str, *, session: str = "", text: str = "", lora: str = "") -> str:
    """Return the name of the instance that answers."""
    document = {"SCRIPT": WHO, "ARGUMENT": text, **({"lora": lora} if lora else {})}
    request = urllib.request.Request(
        f"{server.url}/v2/models/{model}/generate", json.dumps(document).encode()
    )
    if session:
        request.add_header("x-SESSION", session)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(json.load(answer)["TEXT"])


def homes(ask: Callable[[str], str]) -> dict[str, str]:
    """Return the instance of each session, which has been asked for several times."""
    places = {session: ask(session) for session in _SESSIONS}
    for _ in range(3):
        assert places == {session: ask(session) for session in _SESSIONS}
    assert len(set(places.values())) == 3, "all instances have some"
    return places


def counted(server: Server) -> tuple[float, float]:
    """Return hits and misses of all tests so far."""
    hits, misses = (
        sum_series(server, f"zmqtriton_affinity_{what}_total", model="by_header")
        for what in ("hits", "misses")
    )
    return hits, misses


@pytest.mark.smoke
def test_a_session_keeps_its_instance_over_both_protocols(server: Server) -> None:
    before = counted(server)
    places = homes(lambda session: who(server, "by_header", session=session))

    with grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        script = grpcclient.InferInput("SCRIPT", [1], "BYTES")
        script.set_data_from_numpy(np.array([WHO.encode()], object))

        def ask(session: str) -> str:
            answer: Any = client.infer("by_header", [script], headers={"x-session": session})
            return str(answer.as_numpy("TEXT")[0].decode())

        assert places == {session: ask(session) for session in _SESSIONS}
    assert {"by_header_0_0", "by_header_0_1", "by_header_0_2"} == set(places.values())
    hits, misses = counted(server)
    assert (hits - before[0], misses - before[1]) == (24 * 5, 0)


def test_a_parameter_and_the_first_bytes_of_a_text_choose_likewise(server: Server) -> None:
    homes(lambda name: who(server, "by_parameter", lora=name))

    prompts = homes(lambda name: who(server, "by_prefix", text=f"{name[-6:]:6}"))
    for name, home in prompts.items():
        assert home == who(server, "by_prefix", text=f"{name[-6:]:6} and how it goes on")


def test_a_busy_instance_is_given_up_and_none_fails_when_one_dies(server: Server) -> None:
    home = who(server, "by_header", session="anna")
    before = sum_series(server, "zmqtriton_affinity_misses_total", model="by_header")

    def slow(_: int) -> str:
        script = f"import time; time.sleep(0.2); {WHO}"
        request = urllib.request.Request(
            f"{server.url}/v2/models/by_header/generate",
            json.dumps({"SCRIPT": script, "ARGUMENT": ""}).encode(),
            {"X-Session": "anna"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(json.load(answer)["TEXT"])

    with ThreadPoolExecutor(24) as threads:
        answered = Counter(threads.map(slow, range(24)))
    assert answered[home] == max(answered.values())
    assert len(answered) == 3, "24 at once are too many for one"
    after = sum_series(server, "zmqtriton_affinity_misses_total", model="by_header")
    assert 24 - answered[home] == after - before

    [pid] = [p for p, name in server._instances("by_header").items() if name == home]
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: pid not in server.stub_pids("by_header"), 60)
    eventually(lambda: home == who(server, "by_header", session="anna"), 60, "it comes back")


def test_commands_show_how_many_went_home(server: Server) -> None:
    who(server, "by_header", session="anna")

    table = ctl(server, "stats", "by_header", "--total")
    assert "Affine %" in table.stdout.splitlines()[0]
    [row] = json.loads(ctl(server, "stats", "by_header", "--total", "--output=json").stdout)
    assert 0 < row["affinity_percent"] <= 100


def test_a_rule_that_is_none_fails_the_load(server: Server) -> None:
    add_model(server, "scripted", "wrong", string_parameter("AFFINITY", "cookie:a"))

    error = server.control_model("load", "wrong")

    assert "AFFINITY is 'cookie:a', which is none of header:NAME" in error
