"""A server takes over from another, under load, and with signals to either at each moment."""

from __future__ import annotations

import http.client
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from tests.faults.deaths import is_live
from tests.faults.replacements.libraries import library_crowd
from tests.faults.replacements.ways import (
    BySystemd,
    ByTakeOver,
    InOneDirectory,
    OneByOne,
    OnOnePort,
    Way,
)
from tests.support.journal import UNTIL_RELEASED, ask_journal, executions, release_execution
from tests.support.needs import find_tool
from tests.support.server import Server, ask_add_sub, is_open
from tests.support.waiting import eventually
from tests.system.replacements.replacing import FEW, FEWEST, SMALL, lost_in, replace_once
from tests.system.shared_server import SharedServer
from zmqtriton.ctl.main import cli
from zmqtriton.options import parse
from zmqtriton.start import predecessors
from zmqtriton.start.listeners import PortError

pytestmark = pytest.mark.system


@pytest.mark.long(
    "system/replacements/test_directories.py::test_a_server_is_replaced_by_a_command",
    "supervisor/control/test_succession.py::test_what_is_told_after_it_has_asked_is_told_before_the_answer",
    "supervisor/control/test_succession.py::test_a_load_that_was_under_way_when_it_asked_goes_over",
)
def test_a_server_that_takes_over_has_what_the_one_before_was_told(tmp_path: Path) -> None:
    explicit = ("--model-control-mode=explicit", "--load-model=add_sub", "--load-model=tokens")
    way = ByTakeOver(tmp_path, (*explicit, *SMALL))
    way.frontends = ()
    with way:
        [before] = way.servers
        for path, document in (
            ("repository/models/identity_fp32/load", {}),
            ("repository/models/add_sub/unload", {}),
            ("logging", {"log_verbose_level": 1}),
            ("trace/setting", {"trace_rate": "7"}),
        ):
            assert 200 == before.request_json(f"/v2/{path}", document)[0], path
        for command in (["scale", "tokens", "2"], ["drain", "identity_fp32"]):
            arguments = [f"--server=pid:{before.pids()['supervisor'][0]}", *command]
            done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
            assert 0 == done.exit_code, done.output
        documents = what_is_told(before)
        assert "drain" in str(documents["models"])
        way.replace()
        assert documents == what_is_told(way.servers[-1])

    assert "not taken over" not in way.log_text()
    states = {name: (state, reason) for name, state, reason in documents["models"]}
    assert ("UNAVAILABLE", "unloaded") == states["add_sub"]
    assert ("UNAVAILABLE", "READY") == (states["identity_fp32"][0], states["tokens"][0])
    assert (2, 400) == (documents["instances"], documents["ready"])


def what_is_told(server: Server) -> dict[str, Any]:
    """Return what a server says of all that it was told while it ran."""
    _, index = server.request_json("/v2/repository/index", {})
    models = [(one["name"], one.get("state"), one.get("reason")) for one in index]
    return {
        "models": sorted(each for each in models if each[1]),
        "log": server.request_json("/v2/logging")[1],
        "trace": server.request_json("/v2/trace/setting")[1],
        "instances": len(server.stub_pids("tokens")),
        "ready": server.status("/v2/models/identity_fp32/ready"),
    }


def test_a_server_that_hangs_is_called_so_by_the_one_that_takes_over(
    shared: SharedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predecessors, "_WITHIN_S", 0.5)
    words = [f"--http-port={shared.http_port}", "--take-over"]
    options = parse([f"--model-repository={shared.repository}", *words])
    os.kill(shared.pid, signal.SIGSTOP)
    try:
        with pytest.raises(PortError) as refusal:
            predecessors.take_over(options)
    finally:
        os.kill(shared.pid, signal.SIGCONT)

    text = str(refusal.value)
    assert f"port {shared.http_port} is in use, and the old server in " in text
    assert "does not answer: timed out" in text


@pytest.mark.row("D46", "L14", "--reuse-http-port", "--reuse-grpc-port")
@pytest.mark.parametrize(
    "kind",
    [
        OnOnePort,
        pytest.param(
            InOneDirectory,
            marks=pytest.mark.long(
                "system/replacements/test_directories.py::test_a_server_is_replaced_by_a_command"
            ),
        ),
    ],
)
def test_a_server_is_replaced_without_a_failed_request(
    tmp_path: Path, kind: type[OnOnePort] | type[InOneDirectory], monkeypatch: pytest.MonkeyPatch
) -> None:
    way = kind(tmp_path, SMALL)

    replace_once(way, FEWEST, monkeypatch)

    assert "Traceback" not in way.log_text()
    assert "not taken over" not in way.log_text()


@pytest.mark.long(
    "system/replacements/test_take_over.py::test_a_server_is_replaced_without_a_failed_request",
    "system/operations/test_socket_activation.py::test_a_restart_fails_no_request",
    "system/replacements/test_directories.py::test_a_server_is_replaced_by_a_command",
)
@pytest.mark.parametrize("kind", [BySystemd, OnOnePort, InOneDirectory, OneByOne])
def test_clients_of_every_kind_lose_nothing(
    tmp_path: Path, kind: type[Way], monkeypatch: pytest.MonkeyPatch
) -> None:
    way = kind(tmp_path)

    crowd = replace_once(way, FEW, monkeypatch)

    assert "Traceback" not in way.log_text()
    assert lost_in(crowd) == 0 or kind in (BySystemd, OnOnePort)
    assert "not taken over" not in way.log_text()


@pytest.mark.long(
    "system/replacements/test_take_over.py::test_a_server_is_replaced_without_a_failed_request"
)
def test_programs_that_people_use_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_tool("h2load", package="nghttp2-client")
    find_tool("curl")

    replace_once(InOneDirectory(tmp_path), library_crowd(), monkeypatch)


#: The moments of a take-over, each with what one of the servers logs then; True for the old one.
MOMENTS = {
    "the new one has the sockets": (False, "takes over from"),
    "it loads its models": (False, "loading: "),
    "it has loaded them": (False, "successfully loaded 'add_sub'"),
    "it listens over gRPC": (False, "Started GRPCInferenceService"),
    "it listens over HTTP": (False, "Started HTTPService"),
    "the old one leaves": (True, "this one leaves"),
    "the old one closes": (True, "All models are stopped"),
}


def serves(server: Server) -> bool:
    """Return True if new connections of HTTP and gRPC are answered.

    Processes of a server that was killed may have accepted one and end a moment later.
    """
    try:
        return ask_add_sub(server) == 200 and is_live(server)
    except (OSError, http.client.HTTPException):
        return False


@pytest.mark.long(
    "supervisor/control/test_succession.py::test_a_server_that_stops_leaves_the_sockets_to_the_other_one",
    "frontends/serving/test_process.py::test_a_listener_that_was_shut_down_elsewhere_listens_again",
)
@pytest.mark.parametrize("who", ["old", "new"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_signal_at_each_moment_leaves_a_server_that_serves(
    tmp_path: Path, moment: str, number: signal.Signals, who: str
) -> None:
    way = ByTakeOver(tmp_path, SMALL)
    with way:
        [old] = way.servers
        new = way.next()
        way.servers.append(new)
        is_of_old, text = MOMENTS[moment]
        hit, other = (old, new) if who == "old" else (new, old)
        new.launch()
        eventually(lambda: text in (old if is_of_old else new).log_text(), 60, moment)
        # which does nothing to a server that has ended, as it may at any moment
        assert hit.process is not None
        hit.process.send_signal(number)
        if number == signal.SIGSTOP:
            eventually(lambda: has_stopped(hit.pid), 60, "it has stopped")
            hit.process.send_signal(signal.SIGCONT)
            eventually(lambda: old.returncode is not None, 120, "the old one has ended")
            eventually(lambda: serves(new), 60, "the new one serves")
            return
        eventually(lambda: hit.returncode is not None, 120, "it has ended")

        def leaves() -> bool:
            # it may read that it shall only after the end of the new one
            return who == "new" and "this one leaves" in old.log_text()

        eventually(lambda: serves(other) or leaves(), 120, f"{other.log_text()[-3000:]}")
        if leaves():
            eventually(lambda: old.returncode is not None, 120, "so has the old one")
            eventually(lambda: not is_open(way.http_port), 60, "the port is closed")
        assert other.returncode is None or leaves()


def has_stopped(pid: int) -> bool:
    """Return True if a process has stopped, or has ended before it could."""
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


#: The request that keeps a server that stops from its end.
_KEPT = "kept"


@contextmanager
def _request_under_way(server: Server) -> Iterator[Callable[[], None]]:
    """Have a request in the model `journal` for the block; what it yields ends the request."""
    path = server.journal
    release = partial(release_execution, path, _KEPT)
    with ThreadPoolExecutor() as threads:
        request = threads.submit(ask_journal, server, _KEPT, UNTIL_RELEASED)
        try:
            eventually(lambda: _KEPT in executions(path), 60, "the model executes it")
            yield release
        finally:
            release()
        assert 200 == request.result(60)


def test_a_server_that_takes_over_waits_for_one_that_is_ending(tmp_path: Path) -> None:
    way = ByTakeOver(tmp_path, SMALL)
    way.models, way.frontends = ("add_sub", "journal"), ()
    with way:
        [old] = way.servers
        new = way.next()
        way.servers.append(new)
        with _request_under_way(old) as release:
            os.kill(old.pid, signal.SIGTERM)
            eventually(lambda: "the server stops" in old.log_text(), 60, "it stops")
            new.launch()
            eventually(lambda: "is ending, so this server waits" in new.log_text(), 60, "it waits")
            assert (None, None) == (old.returncode, new.returncode)
            release()
        assert 0 == old.wait(60)
        eventually(new.is_ready, 60, new.log_text()[-3000:])


def test_a_server_that_begins_to_end_when_it_is_to_give_its_sockets_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> str:
        os.kill(old.pid, signal.SIGTERM)
        eventually(lambda: "the server stops" in old.log_text(), 60, "it stops")
        return ""

    way = ByTakeOver(tmp_path, SMALL)
    way.models, way.frontends = ("add_sub",), ()
    # it is called between the question which server it is and that for its sockets
    monkeypatch.setattr("zmqtriton.start.predecessors.systemd.invocation", stop)
    with way:
        [old] = way.servers
        options = parse([f"--model-repository={old.repository}", f"--http-port={way.http_port}"])

        assert (None, {}) == predecessors.take_over(options)

        assert 0 == old.wait(60)
        assert not is_open(way.http_port)
