"""A signal to the old or the new server at each moment of a take-over: a server serves, or none."""

from __future__ import annotations

import http.client
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.faults.deaths import is_live
from tests.faults.replacements.ways import ByTakeOver
from tests.support.journal import UNTIL_RELEASED, ask_journal, executions, release_execution
from tests.support.server import Server, ask_add_sub, is_open
from tests.support.waiting import eventually
from tests.system.replacements.replacing import SMALL
from zmqtriton.options import parse
from zmqtriton.start import predecessors

pytestmark = pytest.mark.system

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
    "frontends/serving/test_listener.py::test_a_listener_that_was_shut_down_elsewhere_listens_again",
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
        _signal(hit, number)
        if number == signal.SIGSTOP:
            eventually(lambda: has_stopped(hit.pid), 60, "it has stopped")
            _signal(hit, signal.SIGCONT)
            eventually(lambda: old.returncode is not None, 120, "the old one has ended")
            eventually(lambda: serves(new), 60, "the new one serves")
            return
        eventually(lambda: hit.returncode is not None, 120, "it has ended")
        if who == "new" and "this one leaves" in old.log_text():
            # the old one was on its way when the new one went
            eventually(lambda: old.returncode is not None, 120, "so has the old one")
            eventually(lambda: not is_open(way.http_port), 60, "the port is closed")
            return
        eventually(lambda: serves(other), 120, f"{other.log_text()[-3000:]}")
        assert other.returncode is None


def _signal(server: Server, number: signal.Signals) -> None:
    """Signal a server unless it has ended, which it may do at any moment."""
    if server.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(server.pid, number)


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
