"""A booted systemd with both units: it starts, reloads, restarts and watches a real server.

Other tests play systemd; here its own manager judges what the server says, and the server lives
within what the unit allows. All tests share one machine of the last commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from tests.faults.replacements.machine import ByReloadBehindSockets, ByRestart, reason_against
from tests.support.needs import LeftOut
from tests.support.waiting import eventually
from tests.system.replacements.replacing import FEW, replace_running

pytestmark = [
    pytest.mark.system,
    pytest.mark.timeout(1200),  # a busy machine installs the packages of another one slowly
    pytest.mark.long(
        "system/operations/test_start_and_end.py::test_a_server_says_when_it_is_ready_that_it_lives_and_when_it_stops",
        "system/operations/test_socket_activation.py::test_a_restart_fails_no_request",
        "system/replacements/test_take_over.py::test_a_server_is_replaced_without_a_failed_request",
    ),
]

_WITHIN_S = 180.0
_BOTH = "zmqtriton.socket zmqtriton.service"
_CROWD = {kind: n for kind, n in FEW.items() if kind not in ByReloadBehindSockets.leaves_out}
#: Each of them starts a process or an add-on of its own.
_SWITCHES = ("--routes", "--jobs", "--capture=add_sub", "--capture-to=/var/lib/zmqtriton/captures")


@pytest.fixture(scope="module")
def booted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ByReloadBehindSockets]:
    if reason := reason_against():
        raise LeftOut(f"no machine for systemd: {reason}")
    machine = ByReloadBehindSockets(tmp_path_factory.mktemp("machine"))
    try:
        machine.start()
        yield machine
    finally:
        machine.close()


@pytest.fixture
def machine(booted: ByReloadBehindSockets) -> ByReloadBehindSockets:
    """Both units run, with the usual options, however the test before has left them."""
    booted.run(f"systemctl stop {_BOTH}")
    booted.choose()
    booted.run(f"systemctl reset-failed {_BOTH}; systemctl start {_BOTH}")
    return booted


def _property(machine: ByReloadBehindSockets, name: str, unit: str = "zmqtriton.service") -> str:
    return machine.run(f"systemctl show --property={name} --value {unit}").strip()


def _has_all_models(machine: ByReloadBehindSockets) -> bool:
    return _property(machine, "StatusText") == "4 of 4 model versions are ready"


def _has_failed(machine: ByReloadBehindSockets) -> bool:
    return _property(machine, "ActiveState") == "failed"


def _journal_from_now(machine: ByReloadBehindSockets) -> str:
    """Return the command that shows what the service says from now on."""
    # a root that was here before has its journal still
    since = machine.run("date +%s.%N").strip()
    return f"journalctl --sync; journalctl --unit=zmqtriton --since=@{since}"


def test_a_start_returns_when_the_server_is_ready(machine: ByReloadBehindSockets) -> None:
    assert "active" == _property(machine, "ActiveState")  # by READY=1
    assert machine.is_ready()
    eventually(partial(_has_all_models, machine), _WITHIN_S, "the status")
    assert "active" == _property(machine, "ActiveState", "zmqtriton.socket")
    assert f"127.0.0.1:{machine.http_port} " in _property(machine, "Listen", "zmqtriton.socket")


def test_a_connection_starts_the_service(machine: ByReloadBehindSockets) -> None:
    machine.run("systemctl stop zmqtriton.service 2>&1")
    assert "0" == _property(machine, "MainPID")

    # systemd has accepted nobody: the request waits for the server that it has started
    eventually(machine.is_ready, _WITHIN_S, "answered")

    eventually(lambda: _property(machine, "ActiveState") == "active", _WITHIN_S, "READY=1")


@pytest.mark.parametrize("words", [(), _SWITCHES], ids=["usual", "switches"])
def test_a_reload_fails_no_request(
    machine: ByReloadBehindSockets, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.choose(*words)
    if words:  # so that those of the switches are in both servers
        machine.replace()

    replace_running(machine, _CROWD, monkeypatch)

    assert "active" == _property(machine, "ActiveState")
    command = machine.run(f"tr '\\0' ' ' < /proc/{machine.main_pid()}/cmdline")
    assert all(word in command for word in words)


def test_a_restart_refuses_nobody(
    machine: ByReloadBehindSockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "command", ByRestart.command)

    replace_running(machine, _CROWD, monkeypatch)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--no-such-option"], "unrecognized option '--no-such-option'"),
        (["--model-repository=/srv/none"], "/srv/none"),
        (["--model-control-mode=explicit", "--load-model=nobody"], "nobody"),
    ],
    ids=["option", "repository", "model"],
)
def test_a_start_that_fails_says_why(
    machine: ByReloadBehindSockets, words: list[str], reason: str
) -> None:
    before, journal = machine.main_pid(), _journal_from_now(machine)
    machine.choose(*words)

    # of a reload the old server hears nothing
    assert reason in machine.run(f"! systemctl reload zmqtriton; {journal}")
    assert before == machine.main_pid()
    assert machine.is_ready()

    machine.run(f"systemctl stop {_BOTH}")
    journal = _journal_from_now(machine)
    machine.run("! systemctl start zmqtriton.service")
    # until it is not tried any more
    eventually(partial(_has_failed, machine), _WITHIN_S, "failed for good")
    assert reason in machine.run(journal)


def test_the_watchdog_starts_a_stopped_supervisor_anew(machine: ByReloadBehindSockets) -> None:
    before, journal = machine.main_pid(), _journal_from_now(machine)

    machine.run(f"kill -STOP {before}")

    eventually(lambda: machine.main_pid() not in (0, before), _WITHIN_S, "another server")
    eventually(lambda: _property(machine, "ActiveState") == "active", _WITHIN_S, "READY=1")
    assert machine.is_ready()
    assert "Watchdog timeout (limit 10s)!" in machine.run(journal)
    machine.run(f"[ ! -d /proc/{before} ]")
    eventually(partial(_has_all_models, machine), _WITHIN_S, "the status")
