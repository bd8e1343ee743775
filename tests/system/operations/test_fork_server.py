"""Forked stubs: nothing tells them from spawned ones; and the fork server's own death."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.standard.ctl.system.commands import ctl
from tests.support.scripted import generate, string_parameter
from tests.support.server import Copy, Server
from tests.support.waiting import eventually

#: Instances of the model that starts; more than one, so that forks overlap.
INSTANCES = 2
#: The same program under another name, so that the fork server has no part in it.
ANOTHER_PYTHON = f"{os.path.dirname(sys.executable)}/./{os.path.basename(sys.executable)}"

LOOKS = {
    # Of an active environment, which is not that of another interpreter; and pytest's with the name
    # of the test that came first, where a model's name may stand, too.
    "environment": (
        "{name: value for name, value in __import__('os').environ.items()"
        " if not name.startswith("
        "('VIRTUAL_ENV', 'CONDA_', 'PYTEST_', 'ZMQTRITON_STUB', 'ZMQTRITON_MODEL'))}"
    ),
    "path": "__import__('sys').path",
    "argv": "__import__('sys').argv",
    "name": "open('/proc/self/comm').read()[:5]",
    "flags": "list(__import__('sys').flags)",
    "directory": "__import__('os').getcwd()",
    "session": "__import__('os').getsid(0)",
    "is leader of a group": "__import__('os').getpgid(0) == __import__('os').getpid()",
    "parent": "__import__('os').getppid()",
    "signals": (
        "[str(__import__('signal').getsignal(n)).split(' at ')[0]"
        " for n in __import__('signal').valid_signals()]"
    ),
    "masks": (
        "[line for line in open('/proc/self/status')"
        " if line.startswith(('SigBlk', 'SigIgn', 'SigCgt', 'Umask', 'NoNewPrivs'))]"
    ),
    "limits": "open('/proc/self/limits').read()",
    "dies with": (
        "(lambda c, n: (c.CDLL(None).prctl(2, c.byref(n), 0, 0, 0), n.value))"
        "(__import__('ctypes'), __import__('ctypes').c_int())"
    ),
    "oom": "open('/proc/self/oom_score_adj').read()",
    "streams": (
        "[(s.encoding, s.errors, s.line_buffering, s.fileno())"
        " for s in (__import__('sys').stdin, __import__('sys').stdout, __import__('sys').stderr)]"
    ),
    "main thread": ("__import__('threading').main_thread().native_id == __import__('os').getpid()"),
    "collector": "[__import__('gc').isenabled(), __import__('gc').get_threshold()]",
    "main module": "__import__('sys').modules['__main__'].__file__",
    "name of the main module": "__import__('sys').modules['__main__'].__name__",
}


pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=[
            Copy("add_sub", edit=("count: 1", f"count: {INSTANCES}")),
            Copy("scripted", "born"),
            Copy("scripted", "spawned", string_parameter("PYTHON_EXECUTABLE", ANOTHER_PYTHON)),
        ],
        kills=True,
    ),
]


def ask(server: Server, model: str, question: str) -> Any:
    """Return what a Python expression is worth inside the stub."""
    script = f"import json\nreturn [reply(json.dumps({question}))]"
    return json.loads(generate(server, model, script))


def fork_server_of(server: Server) -> int:
    """The only one; not what it has just forked, which for a moment looks the same."""

    def running_pid() -> int | None:
        pids = server.pids().get("fork-server", [])
        return pids[0] if len(pids) == 1 else None

    return eventually(running_pid, 30, "a fork server")


def has_started(pid: int) -> bool:
    """It shares with others what no file backs; nobody does who has ended."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return False
    return int(re.findall(r"^Shared_Dirty:\s+(\d+)", rollup, re.MULTILINE)[0]) > 4096


def reload_has_started(server: Server, model: str) -> bool:
    """Return whether the model's new stubs are forked: some are not while fork servers end."""
    before = set(server.stub_pids(model))
    for verb in ("unload", "load"):
        assert "" == server.control_model(verb, model)
    eventually(lambda: not before.intersection(server.stub_pids(model)), 30, "the old ones' end")
    return all(has_started(pid) for pid in server.stub_pids(model))


def test_stubs_on_the_servers_interpreter_share_what_they_have_loaded(server: Server) -> None:
    for model in ("born", "add_sub"):
        eventually(partial(reload_has_started, server, model), 60)
    born = [*server.stub_pids("born"), *server.stub_pids("add_sub")]

    assert 1 + INSTANCES == len(born)
    assert all(has_started(pid) for pid in born)
    assert not any(has_started(pid) for pid in server.stub_pids("spawned"))


def test_nothing_tells_a_born_stub_from_a_spawned_one(server: Server) -> None:
    question = "{" + ",".join(f"{what!r}: {look}" for what, look in LOOKS.items()) + "}"

    answers = [
        json.loads(json.dumps(ask(server, model, question)).replace(model, "MODEL"))
        for model in ("born", "spawned")
    ]

    assert answers[1] == answers[0]


def test_the_modules_are_those_of_a_spawned_one(server: Server) -> None:
    # a stub that was started while a fork server ended was spawned itself
    if not all(has_started(pid) for pid in server.stub_pids("born")):
        eventually(partial(reload_has_started, server, "born"), 60)
    born, spawned = (
        set(ask(server, model, "sorted(__import__('sys').modules)"))
        for model in ("born", "spawned")
    )

    assert {"zmqtriton_stub.fork_server"} == born - spawned
    assert set() == spawned - born


def test_the_command_line_is_that_of_a_spawned_one(server: Server) -> None:
    seen = []
    for model, python in (("born", sys.executable), ("spawned", ANOTHER_PYTHON)):
        own = ask(server, model, "__import__('sys').orig_argv")
        (pid,) = server.stub_pids(model)
        kernels = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        # Where the kernel does not let us shorten it, nothing stands behind.
        assert own == [word for word in kernels if word]
        assert python == own[0]
        seen.append([re.sub(r"^\d+$", "N", word.replace(model, "MODEL")) for word in own[1:]])

    assert seen[1] == seen[0]


def test_copies_of_one_fork_server_draw_different_numbers(server: Server) -> None:
    question = "[__import__('random').random(), __import__('numpy').random.random()]"
    eventually(partial(reload_has_started, server, "born"), 60)

    draws = [ask(server, "born", question)]
    pid = server.kill_only("stub", "born")
    eventually(lambda: server.stub_pids("born") not in ([], [pid]), 30)
    eventually(lambda: server.status("/v2/models/born/ready") == 200, 30)
    draws.append(ask(server, "born", question))

    assert has_started(server.stub_pids("born")[0])
    assert draws[0][0] != draws[1][0]
    assert draws[0][1] != draws[1][1]
    reload_has_started(server, "born")  # without the modules that it was asked to import


def test_a_dead_fork_server_harms_no_stub_and_is_replaced(server: Server) -> None:
    before = sorted(server.pids()["stub"])
    fork_server = fork_server_of(server)

    os.kill(fork_server, signal.SIGKILL)

    eventually(lambda: server.pids().get("fork-server") not in (None, [], [fork_server]), 30)
    assert before == sorted(server.pids()["stub"])
    assert ask(server, "born", "1 + 1") == 2
    described = json.loads(ctl(server, "status", "--json").stdout)
    (row,) = [p for p in described["processes"] if p["role"] == "fork-server"]
    assert (fork_server_of(server), "killed by SIGKILL") == (row["pid"], row["last_reason"])
