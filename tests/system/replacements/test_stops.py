"""A signal to the old or the new server at each moment of a take-over: a server serves, or none."""

from __future__ import annotations

import http.client
import os
import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.faults.deaths import is_live
from tests.faults.replacements.ways import ByTakeOver
from tests.support.server import Server, ask_add_sub, is_open
from tests.support.waiting import eventually
from tests.system.replacements.replacing import SMALL

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
