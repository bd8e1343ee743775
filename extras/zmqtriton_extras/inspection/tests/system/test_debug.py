"""The debugger in an instance: where it stops, what goes on meanwhile, and how it ends."""

from __future__ import annotations

import json
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

import pytest

from tests.standard.ctl.system.commands import OPTION, ctl, place
from tests.standard.tools.advice.world import BODY, World
from tests.standard.tools.system import broken_models as broken
from tests.support.server import Server
from zmqtriton.control_client import ServerSelector, connect
from zmqtriton_extras.inspection.tests.operators import (
    RUNS,
    STOPS,
    Terminal,
    asked,
    debugged,
    operator,
    wait_for,
)

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(models=("add_sub",), options=[OPTION], frontends=()),
]
#: Waits for its release, if it is told to; each of its instances can.
LIMITED = broken.CONFIG + broken.parameter("max_execution_seconds", "5")
LINE = next(n for n, text in enumerate(STOPS.splitlines(), 1) if "breakpoint()" in text)


def prepare(server: Server) -> None:
    World(server, "stops").write(LIMITED, STOPS)
    World(server, "runs").write(broken.CONFIG, RUNS)
    two = broken.CONFIG + "instance_group [{ count: 2 kind: KIND_CPU }]\n"
    World(server, "two").write(two, RUNS)


def debugging(server: Server, *words: str) -> AbstractContextManager[Terminal]:
    """An operator with pdb."""
    return operator(server, *words, "--pdb")


@pytest.mark.smoke
def test_a_breakpoint_waits_for_the_debugger_which_sees_the_models_variables(
    server: Server,
) -> None:
    with asked(server, "stops") as answer:
        wait_for(lambda: debugged(server), "it waits")
        [row] = debugged(server)
        said = ctl(server, "explain", "stops").output

        with debugging(server, "stops") as terminal:
            terminal.wait_for("(Pdb)")
            terminal.type("p secret")
            terminal.wait_for("42")
            terminal.type("next")
            terminal.type("p secret")
            terminal.wait_for("43")
            assert not answer.done()
            terminal.type("continue")
            terminal.wait_for("The model goes on.")

    assert ("stops", False) == (row["model"], row["has_operator"])
    assert row["place"].endswith(f"model.py:{LINE}")
    assert f"waits at a breakpoint() (model.py:{LINE}) for `zmqtriton-ctl debug stops`" in (
        server.log_text()
    )
    assert f"stops: instance stops_0 stands at model.py:{LINE}" in said
    assert "hangs" not in said
    assert [] == debugged(server)


def test_limits_of_time_rest_while_others_serve(server: Server) -> None:
    wait_for(lambda: 1 == len(server.stub_pids("stops")), "an earlier one is gone")
    pids = server.stub_pids("stops")
    with asked(server, "stops"), debugging(server, "stops") as terminal:
        terminal.wait_for("(Pdb)")
        at = f"stops_0 stands at model.py:{LINE + 1}"
        wait_for(lambda: at in ctl(server, "status").output, "the status tells")
        ages = [0.0]
        while ages[-1] < 7:  # its limit is five seconds
            assert 0 == ctl(server, "infer", "add_sub", "--zeros").exit_code
            rows = json.loads(ctl(server, "status", "-o", "json").output)["processes"]
            ages += [row["executing_s"] for row in rows if row.get("instance") == "stops_0"]
        terminal.type("continue")

    assert pids == server.stub_pids("stops")


def test_the_limit_holds_again_behind_the_session(server: Server) -> None:
    with asked(server, "stops"), debugging(server, "stops") as terminal:
        terminal.wait_for("(Pdb)")
        terminal.type("continue")
    slow = STOPS.replace("breakpoint()", "time.sleep(100)")
    World(server, "stops").write_code(slow)
    ctl(server, "reload", "stops")
    try:
        assert 503 == server.request_json("/v2/models/stops/infer", BODY, within_s=60)[0]
    finally:
        World(server, "stops").write_code(STOPS)
        ctl(server, "reload", "stops")


def test_a_killed_debugger_lets_the_model_go_on(server: Server) -> None:
    with asked(server, "stops") as answer, debugging(server, "stops") as terminal:
        terminal.wait_for("(Pdb)")
        assert not answer.done()

        terminal.process.send_signal(signal.SIGKILL)

        answer.result(60)


def test_an_operator_who_says_nothing_lets_the_model_go_on(server: Server) -> None:
    with (
        asked(server, "stops") as answer,
        debugging(server, "stops", "--timeout", "1") as terminal,
    ):
        terminal.wait_for("You said nothing for too long: the model goes on.")
        answer.result(60)


def test_a_model_without_a_breakpoint_stops_at_its_next_line(server: Server) -> None:
    last = next(n for n, text in enumerate(RUNS.splitlines(), 1) if "done = total" in text)
    with debugging(server, "runs") as terminal:
        terminal.wait_for("with its next request if it is idle")
        with asked(server, "runs"):
            terminal.wait_for("(Pdb)")
            terminal.type(f"break {last}")
            terminal.wait_for("Breakpoint 1 at")
            terminal.type("continue")
            terminal.wait_for("-> done = total")
            terminal.type("p number")
            terminal.wait_for("(Pdb) 2\n")
            terminal.type("quit")
    with asked(server, "runs"):
        pass  # nothing stops it any more
    assert [] == debugged(server)


def test_another_instance_serves_meanwhile(server: Server) -> None:
    with debugging(server, "two", "--instance", "1") as terminal:
        terminal.wait_for("with its next request if it is idle")
        with ThreadPoolExecutor(8) as pool:
            path = "/v2/models/two/infer"
            answers = [pool.submit(server.request_json, path, BODY, within_s=300) for _ in range(8)]
            terminal.wait_for("(Pdb)")
            wait_for(lambda: sum(one.done() for one in answers) >= 6, "the other one serves")
            again = ctl(server, "debug", "two", "--instance", "two_0_1")
            terminal.type("quit")
            assert [200] * 8 == [answer.result(60)[0] for answer in answers]

    assert "'two_0_1' is being debugged already" in again.output


def test_an_operator_who_leaves_before_the_stop_leaves_nothing(server: Server) -> None:
    with debugging(server, "runs") as terminal:
        terminal.wait_for("with its next request if it is idle")
    with asked(server, "runs"):
        pass


def test_only_who_knows_the_token_is_heard(server: Server) -> None:
    with asked(server, "stops"):
        wait_for(lambda: debugged(server), "it waits")
        directory = place(server).partition("=")[2]
        with connect(ServerSelector(directory=directory)) as client:
            call = client.call("debug", {"model": "stops"})
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
            wait_for(lambda: not stranger.connect_ex(f"\0{call['address']}"), "its socket")
            stranger.sendall(b"another token\n")
            assert b"" == stranger.recv(100)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as operator:
            operator.connect(f"\0{call['address']}")
            operator.sendall(f"{call['token']} pdb\ncontinue\n".encode())
            assert operator.recv(100)
