"""debugpy in an instance, as an editor speaks with it: its session, its end, and who may not."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.standard.ctl.system.commands import OPTION, ctl
from tests.standard.tools.advice.world import World
from tests.standard.tools.system import broken_models as broken
from tests.support.needs import import_or_skip
from tests.support.server import Server
from zmqtriton_extras.inspection.tests.dap import Editor
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

import_or_skip("debugpy")


pytestmark = [
    pytest.mark.system,
    pytest.mark.server(models=("add_sub",), options=[OPTION], frontends=()),
]
#: Its environment has no debugpy.
BARE = "import sys\n\nsys.modules['debugpy'] = None\n" + STOPS
LIMITED = broken.CONFIG + broken.parameter("max_execution_seconds", "1")


def line_of(code: str, text: str) -> int:
    return next(n for n, line in enumerate(code.splitlines(), 1) if text in line)


def prepare(server: Server) -> None:
    World(server, "stops").write(LIMITED, STOPS)
    World(server, "runs").write(broken.CONFIG, RUNS)
    World(server, "bare").write(broken.CONFIG, BARE)
    shared = broken.CONFIG + broken.parameter("INSTANCES", "threads")
    two = shared + "instance_group [{ count: 2 kind: KIND_CPU }]\n"
    World(server, "two").write(two, STOPS)


def configuration_of(terminal: Terminal) -> dict[str, Any]:
    """The configuration for launch.json that the operator sees."""
    terminal.wait_for("For pdb use --pdb.")
    [line] = [one for one in terminal.shown.splitlines() if one.startswith("    {")]
    return json.loads(line)


@contextmanager
def editing(
    server: Server, model: str, *words: str, lines: tuple[int, ...] = ()
) -> Iterator[tuple[Terminal, Editor]]:
    """An operator whose editor has attached itself, with breakpoints in the model's code."""
    with (
        operator(server, model, "--port", "0", *words) as terminal,
        closing(Editor(configuration_of(terminal))) as editor,
    ):
        editor.attach({file_of(server, model): [*lines]})
        yield terminal, editor


def file_of(server: Server, model: str) -> Path:
    return server.repository / model / "1/model.py"


def test_an_editor_stops_at_a_breakpoint_and_sees_the_models_variables(server: Server) -> None:
    line = line_of(STOPS, "secret += 1")
    with asked(server, "stops") as answer, editing(server, "stops") as (terminal, editor):
        thread, frame = editor.stopped()
        [row] = debugged(server)
        before = editor.variables(frame)
        values = [editor.evaluate(frame, "secret * 2", how) for how in ("hover", "watch", "repl")]
        editor.ask("next", threadId=thread)
        _, after = editor.stopped()
        assert "43" == editor.variables(after)["secret"]
        assert not answer.done()
        editor.ask("continue", threadId=thread)
        answer.result(60)
        [running] = debugged(server)
        editor.disconnect()
        editor.close()
        terminal.wait_for("The model goes on.")

    assert (str(file_of(server, "stops")), line) == (frame["source"]["path"], frame["line"])
    assert "42" == before["secret"]
    assert ["84"] * 3 == values
    assert (f"model.py:{line}", True) == (os.path.basename(row["place"]), row["has_operator"])
    assert "" == running["place"]


def test_breakpoints_of_the_editor_stop_a_model_without_one_beside_load(server: Server) -> None:
    line = line_of(RUNS, "total += number")
    with editing(server, "runs", lines=(line,)) as (_, editor), asked(server, "runs"):
        for number in ("0", "1"):
            thread, frame = editor.stopped()
            assert (line, number) == (frame["line"], editor.variables(frame)["number"])
            assert 0 == ctl(server, "infer", "add_sub", "--zeros").exit_code
            editor.ask("continue", threadId=thread)
        thread, _ = editor.stopped()
        file = {"path": str(file_of(server, "runs"))}
        editor.ask("setBreakpoints", source=file, breakpoints=[])
        editor.ask("continue", threadId=thread)

    with asked(server, "runs"):
        pass  # nothing stops it any more


def test_limits_of_time_rest_while_an_editor_looks(server: Server) -> None:
    pids = server.stub_pids("stops")
    with asked(server, "stops"), editing(server, "stops") as (_, editor):
        editor.stopped()
        ages = [0.0]
        while ages[-1] < 3:  # its limit is a second
            rows = json.loads(ctl(server, "status", "-o", "json").output)["processes"]
            ages += [row["executing_s"] for row in rows if row.get("instance") == "stops_0"]

    assert pids == server.stub_pids("stops")


def test_a_killed_editor_lets_the_model_go_on(server: Server) -> None:
    with asked(server, "stops") as answer, editing(server, "stops") as (terminal, editor):
        editor.stopped()
        assert not answer.done()

        editor.close()

        answer.result(60)
        terminal.wait_for("The model goes on.")


def test_a_breakpoint_stops_again_in_the_same_session(server: Server) -> None:
    with asked(server, "stops"), editing(server, "stops") as (_, editor):
        thread, first = editor.stopped()
        editor.ask("continue", threadId=thread)
        with asked(server, "stops"):
            thread, second = editor.stopped()
            editor.ask("continue", threadId=thread)

    assert first["line"] == second["line"]


def test_a_killed_command_lets_the_model_go_on(server: Server) -> None:
    with asked(server, "stops") as answer, editing(server, "stops") as (terminal, editor):
        editor.stopped()

        terminal.process.send_signal(signal.SIGKILL)

        answer.result(60)


@pytest.mark.parametrize("is_attached", [True, False])
def test_a_silent_editor_lets_the_model_go_on(server: Server, is_attached: bool) -> None:
    with asked(server, "stops") as answer:
        if is_attached:
            with editing(server, "stops", "--timeout", "2") as (terminal, editor):
                editor.stopped()
                terminal.wait_for("The model goes on.")
        else:
            with operator(server, "stops", "--port", "0", "--timeout", "2") as terminal:
                configuration_of(terminal)
                terminal.wait_for("The model goes on.")
        answer.result(60)


#: Connects, says something, and hears nothing, or leaves at once.
STRANGER = """
import encodings.idna, os, socket, sys
os.setuid(65534)
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as stranger:
    stranger.sendall(b"Content-Length: 0\\r\\n\\r\\n")
    if sys.argv[3] == "hears":
        try:
            assert not stranger.recv(1)
        except ConnectionResetError:
            pass
"""


@pytest.mark.parametrize("does", ["hears", "leaves"])
def test_a_port_is_open_to_the_operators_user_alone(server: Server, does: str) -> None:
    if os.geteuid():
        pytest.skip("only root can be another user")
    with asked(server, "stops"), operator(server, "stops", "--port", "0") as terminal:
        place = configuration_of(terminal)["connect"]
        words = [STRANGER, place["host"], str(place["port"]), does]
        # of a connection that is closed already nobody knows the user
        subprocess.run([sys.executable, "-Sc", *words], check=True, timeout=60)
        terminal.wait_for("A connection of another user was refused.")
        with closing(Editor(configuration_of(terminal))) as editor:
            editor.attach({})
            thread, _ = editor.stopped()
            editor.ask("continue", threadId=thread)


#: What a web page can have the operator's browser send, as simple requests.
EVALUATE = {"expression": "open({!r}, 'w')", "context": "repl"}


def request_of_a_browser(method: str, file: Path) -> bytes:
    arguments = {**EVALUATE, "expression": EVALUATE["expression"].format(str(file))}
    asked = {"seq": 1, "type": "request", "command": "evaluate", "arguments": arguments}
    body = json.dumps(asked).encode()
    head = f"{method} / HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://evil.example\r\n"
    return f"{head}Content-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def test_a_web_page_reaches_no_model(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "written"
    with asked(server, "stops"), operator(server, "stops", "--port", "0") as terminal:
        connect = configuration_of(terminal)["connect"]
        for method in ("POST", "PUT"):
            with socket.create_connection((connect["host"], connect["port"]), 60) as browser:
                browser.sendall(request_of_a_browser(method, file))
                assert b"" == received(browser)

        with closing(Editor(configuration_of(terminal))) as editor:
            editor.attach({})
            thread, _ = editor.stopped()
            editor.ask("continue", threadId=thread)

    assert "A connection that began in another way was refused." in terminal.shown
    assert not file.exists()


def test_connections_that_say_nothing_or_too_little_keep_no_editor_out(server: Server) -> None:
    with asked(server, "stops"), operator(server, "stops", "--port", "0") as terminal:
        connect = configuration_of(terminal)["connect"]
        with ExitStack() as others:
            for begin in (b"", b"C", b"Content-Length: 5"):
                other = socket.create_connection((connect["host"], connect["port"]), 60)
                others.enter_context(other).sendall(begin)
            with closing(Editor(configuration_of(terminal))) as editor:
                editor.attach({})
                thread, _ = editor.stopped()
                editor.ask("continue", threadId=thread)


def test_a_port_in_use_is_named_with_the_way_out_and_the_model_goes_on(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, asked(server, "stops"):
        wait_for(lambda: debugged(server), "it waits")
        port = taken.getsockname()[1]
        result = ctl(server, "debug", "stops", "--port", str(port))

    assert 1 == result.exit_code
    text = f"port {port} of 127.0.0.1 cannot be opened: Address already in use, by process "
    assert text + str(os.getpid()) in result.output
    assert "--port 0. The model goes on" in result.output
    wait_for(lambda: not debugged(server), "the session is over")


def test_a_model_without_debugpy_has_pdb_and_so_have_instances_of_one_process(
    server: Server,
) -> None:
    for model in ("bare", "two"):
        with asked(server, model), operator(server, model, "--port", "0") as terminal:
            terminal.wait_for("(Pdb)")
            terminal.type("p secret")
            terminal.wait_for("42")
            terminal.type("continue")
            terminal.wait_for("The model goes on.")
