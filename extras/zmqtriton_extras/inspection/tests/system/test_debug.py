"""The debugger in an instance: where it stops, what goes on meanwhile, and how it ends."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

import pytest

from tests.standard.ctl.system.commands import OPTION, ctl, place
from tests.standard.tools.advice.world import BODY, World
from tests.standard.tools.system import broken_models as broken
from tests.support.server import Server
from zmqtriton.control_client import ServerSelector
from zmqtriton_extras.inspection import debug_command
from zmqtriton_extras.inspection.tests.operators import (
    RUNS,
    STOPS,
    Terminal,
    asked,
    debugged,
    operator,
    received,
    wait_for,
)
from zmqtriton_floor.errors import Unavailable

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
        with ServerSelector(directory=directory).connect() as client:
            call = client.call("debug", {"model": "stops"})
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
            wait_for(lambda: not stranger.connect_ex(f"\0{call['address']}"), "its socket")
            stranger.sendall(b"another token\n")
            assert b"" == received(stranger)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as operator:
            operator.connect(f"\0{call['address']}")
            operator.sendall(f"{call['token']} pdb\ncontinue\n".encode())
            assert operator.recv(100)


#: Says a letter now and then, and ends once its connection does.
DRIP = """
import os, select, socket, sys
os.setuid(int(sys.argv[2]))
with socket.socket(socket.AF_UNIX) as stranger:
    stranger.connect("\\0" + sys.argv[1])
    print("connected", flush=True)
    try:
        while not select.select([stranger], [], [], 0.2)[0]:
            stranger.sendall(b"a")
    except OSError:
        pass
"""


@pytest.mark.parametrize("user", ["another", "the same"])
def test_a_connection_that_drips_holds_up_neither_model_nor_operator(
    server: Server, user: str
) -> None:
    if os.geteuid() and user == "another":
        pytest.skip("only root can be another user")
    number = os.geteuid() if user == "the same" else 65534
    with asked(server, "stops"):
        wait_for(lambda: debugged(server), "it waits")
        with ServerSelector(directory=place(server).partition("=")[2]).connect() as client:
            call = client.call("debug", {"model": "stops"})
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        wait_for(lambda: not probe.connect_ex(f"\0{call['address']}"), "its socket")
        words = [sys.executable, "-Sc", DRIP, call["address"], str(number)]
        with probe, subprocess.Popen(words, stdout=subprocess.PIPE) as stranger:
            try:
                assert stranger.stdout is not None
                assert b"connected\n" == stranger.stdout.readline()
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as operator:
                    operator.settimeout(20)
                    operator.connect(f"\0{call['address']}")
                    operator.sendall(f"{call['token']} pdb\ncontinue\n".encode())
                    assert b"pdb\n" == operator.recv(4)
                # its connection has an end, too
                assert 0 == stranger.wait(60)
            finally:
                stranger.kill()


def test_texts_of_the_model_do_not_move_the_operators_terminal(server: Server) -> None:
    with asked(server, "stops"), debugging(server, "stops") as terminal:
        terminal.wait_for("(Pdb)")
        terminal.type(
            'p type("E", (), {"__repr__": lambda _: chr(27) + "]0;owned" + chr(0x202E)})()'
        )
        terminal.wait_for("owned")
        terminal.type("continue")

    assert "\\u001b]0;owned\\u202e" in terminal.shown
    assert not {"\x1b", "\u202e"} & set(terminal.shown)


def test_an_instance_that_says_nothing_has_a_time_and_an_error_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(debug_command, "_OPENS_WITHIN_S", 0.2)
    answer = {"address": secrets.token_hex(16), "token": "t", "instance": "m_0"}

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.bind(f"\0{answer['address']}")
        silent.listen(4)
        with pytest.raises(Unavailable, match=r"'m_0' has not begun a session in 0\.2 s"):
            debug_command._connected(answer, is_pdb=True)
