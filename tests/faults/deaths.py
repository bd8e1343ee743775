"""Deaths of a server's processes under load: what fails by them, and when all is well again.

Stubs, templates, the broker and frontends are killed; a stub in the middle of an execution. Models
stay, and what had not been executed is not lost. Nothing may be left of a server whose supervisor
is killed.
"""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import grpc
import psutil

from tests.faults.load import Answer, Load
from tests.faults.stamps import steer
from tests.support import leaks
from tests.support.journal import Record, executions, read_journal
from tests.support.scripted import extend_config, string_parameter
from tests.support.server import Server
from tests.support.waiting import eventually

#: Of the model; fewer than clients, so that some requests always wait.
INSTANCES = 2
#: Milliseconds of an execution, clients, and their pauses in seconds.
LOADS = ((30, 4, 0.0), (2, 4, 0.01))
#: Of a stub that is killed: how long one execution of its model takes, and between two kills, since
#: a server takes an instance that dies more often for one that cannot work.
EXECUTION_MS, PAUSE_S = 30, 2.5


def use_instances(server: Server, model: str = "journal", count: int = INSTANCES) -> None:
    """Before the server starts."""
    server.edit_config(model, "count: 1", f"count: {count}")


def settle(server: Server) -> Server:
    """Return a server as it was at its start, after tests that have killed some of its processes.

    The journal is empty then.
    """
    roles = {"broker": 1, "http": 2, "grpc": 1, "metrics": 1}

    def is_whole() -> bool:
        pids = server.pids()
        return server.is_ready() and all(len(pids.get(r, [])) == n for r, n in roles.items())

    eventually(is_whole, 60, "the server is whole")
    eventually(lambda: len(server.stub_pids("journal")) == INSTANCES, 60, "all instances")
    os.truncate(server.journal, 0)  # models go on appending to it
    return server


@contextmanager
def mixed_load(server: Server) -> Iterator[list[Load]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                Load(server.http_port, clients=clients, milliseconds=ms, pause_s=pause_s)
            )
            for ms, clients, pause_s in LOADS
        ]


def answers_of(loads: Sequence[Load]) -> list[Answer]:
    return [answer for load in loads for answer in load.answers]


def check_executed_once(
    server: Server, answers: Sequence[Answer], status: int = 503
) -> list[Answer]:
    """Nothing was executed twice, and every request has one answer; those that failed with it."""
    executed = executions(server.journal)
    assert {own_id: n for own_id, n in executed.items() if n > 1} == {}
    assert len({o.id for o in answers}) == len(answers)
    assert [o for o in answers if o.is_right and o.id not in executed] == []
    wrong = [o for o in answers if not o.is_right]
    assert [o for o in wrong if o.status != status] == []
    return wrong


def _first_after(loads: Sequence[Load], ns: int) -> Answer | None:
    """The first answer to what was asked after that moment."""
    news = [o for load in loads for o in load.answers[-500:] if o.sent_ns > ns and o.is_right]
    return min(news, key=lambda o: o.ended_ns) if news else None


def _kill(loads: Sequence[Load], pid: int, number: int = signal.SIGKILL) -> int:
    """Send a signal to a process while loads are answered; return when."""
    before_ns = time.monotonic_ns()
    eventually(lambda: _first_after(loads, before_ns), 30, "answers before the kill")
    killed_ns = time.monotonic_ns()
    os.kill(pid, number)
    return killed_ns


def _back_ms(loads: Sequence[Load], killed_ns: int) -> float:
    """Return the milliseconds from a kill to the first answer to what was asked after it."""
    first = eventually(lambda: _first_after(loads, killed_ns), 30, "answers after the kill")
    return (first.ended_ns - killed_ns) / 1e6


def _since_ms(ns: int) -> float:
    return (time.monotonic_ns() - ns) / 1e6


# ------------------------------------------------------------------------------ stubs

_TEXT = re.compile(
    r"Failed to process the request\(s\) for model instance 'journal_0_0', message: "
    r"Stub process 'journal_0_0' is not healthy\. \(killed by SIGKILL\)"
)


def _kill_in_execution(server: Server) -> tuple[Record, int] | None:
    """Kills the stub; the execution that it was in, and when. None if it was between two."""

    def open_execution() -> Record | None:
        records = read_journal(server.journal)
        return records[-1] if records and records[-1].event == "start" else None

    record = eventually(open_execution, 30, "an execution")
    killed_ns = time.monotonic_ns()
    os.kill(record.pid, signal.SIGKILL)
    eventually(lambda: not os.path.exists(f"/proc/{record.pid}"), 30, "the stub's end")
    last = [r for r in read_journal(server.journal) if r.pid == record.pid][-1]
    return (last, killed_ns) if last.event == "start" else None


def kill_stub(server: Server, load: Load) -> tuple[float, float] | None:
    """One round, under a load that goes on; None if the kill met no execution.

    Return the milliseconds from the kill to the client's error, and to the first answer of the new
    stub, without the execution itself.
    """
    hit = _kill_in_execution(server)
    if hit is None:
        return None
    record, killed_ns = hit

    def answered() -> Answer | None:
        return next((o for o in load.answers if o.id == record.id), None)

    def back() -> Record | None:
        news = [r for r in read_journal(server.journal) if r.ns > killed_ns]
        return next((r for r in news if r.event == "start" and r.pid != record.pid), None)

    failed = eventually(answered, 30, f"an answer to {record.id}")
    assert failed.status == 503, failed
    assert _TEXT.search(failed.text), failed
    first = eventually(back, 60, "a new stub that executes")
    return (failed.ended_ns - killed_ns) / 1e6, (first.ns - killed_ns) / 1e6


def check_stubs(server: Server, load: Load, hits: int, kills: int) -> None:
    """Assert that everything but what was killed succeeded, and nothing was executed twice.

    A kill that met no execution of the journal may still have met a request, before its start or
    after its end was written down.
    """
    wrong = check_executed_once(server, load.answers)
    assert hits <= len(wrong) <= kills, wrong


# -------------------------------------------------------------------------- templates
# The process that a model's instances are forks of is killed, at each moment of its life. Nobody's
# request fails by it: instances live on, and those that were to come are forked from the next one.
# A load that it was for fails with the reason, and succeeds when it is asked for again.

TEMPLATE_OPTIONS = ("--model-control-mode=explicit", "--load-model=journal")
_WITHIN_S = 60.0
#: What a load says whose template was killed.
_REASON = "the template that it is forked from: killed by SIGKILL"


def use_forks(server: Server) -> None:
    """Have the model's instances be forks; its import lasts long enough to be met."""
    extend_config(server, "journal", string_parameter("INSTANCES", "forks"))
    code = server.repository / "journal" / "1" / "model.py"
    code.write_text(f"{code.read_text()}\ntime.sleep(0.1)\n")


def _scale(server: Server, count: int) -> None:
    steer(server, "scale", {"count": count}, "journal")


def _template(server: Server) -> int:
    """Return the process of the template; one that was killed comes again with the next fork."""
    if not server.pids().get("template"):
        for count in (INSTANCES + 1, INSTANCES):
            _scale(server, count)
    [pid] = server.pids()["template"]
    return pid


def _another(server: Server, before: int) -> int:
    return next((pid for pid in server.pids().get("template", []) if pid != before), 0)


def _while_idle(server: Server, _: random.Random) -> float:
    os.kill(_template(server), signal.SIGKILL)
    killed_s = time.monotonic()
    _scale(server, INSTANCES + 1)
    return killed_s


def _while_asked(
    server: Server, chance: random.Random, max_s: float, *, is_stopped: bool = False
) -> float:
    """It has the request; if it is stopped, it has not read it."""
    template = _template(server)
    if is_stopped:
        os.kill(template, signal.SIGSTOP)
    with _beside(lambda: _scale(server, INSTANCES + 1)):
        time.sleep(chance.uniform(0.1 * max_s, max_s))
        os.kill(template, signal.SIGKILL)
        return time.monotonic()


def _while_it_loads(server: Server, chance: random.Random) -> float:
    before, code = _template(server), server.repository / "journal" / "1" / "model.py"
    code.write_text(f"{code.read_text()}\n")
    with _beside(lambda: server.control_model("load", "journal")) as load:
        template = eventually(lambda: _another(server, before), _WITHIN_S, "a template")
        time.sleep(chance.uniform(0.0, 0.5))
        os.kill(template, signal.SIGKILL)
        killed_s = time.monotonic()
    error = load.result()
    assert not error or _REASON in error, error
    assert server.control_model("load", "journal") == ""
    return killed_s


@contextmanager
def _beside(ask: Callable[[], str | None]) -> Iterator[Future[str | None]]:
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(ask)
        yield future
        future.result(_WITHIN_S)


TEMPLATE_MOMENTS: dict[str, Callable[[Server, random.Random], float]] = {
    "idle": _while_idle,
    "asked for a fork": partial(_while_asked, max_s=0.2, is_stopped=True),
    "forking": partial(_while_asked, max_s=0.02),
    "loading": _while_it_loads,
}


def _done_ms(server: Server, moment: str, chance: random.Random) -> float:
    """Kill it; return the time until what was asked meanwhile, or is asked then, is done."""
    killed_s = TEMPLATE_MOMENTS[moment](server, chance)
    done_s = time.monotonic()
    _scale(server, INSTANCES)
    eventually(lambda: len(server.stub_pids("journal")) == INSTANCES, _WITHIN_S, "two instances")
    return 1000 * (done_s - killed_s)


@contextmanager
def template_kills(server: Server, seed: int = 1) -> Iterator[Callable[[], tuple[float, ...]]]:
    """Yield what kills it at each moment, under a load of which nothing fails."""
    _scale(server, INSTANCES)
    chance = random.Random(seed)
    with Load(server.http_port, clients=4, milliseconds=5) as load:
        yield lambda: tuple(_done_ms(server, moment, chance) for moment in TEMPLATE_MOMENTS)
    failed = [one for one in load.answers if not one.is_right]
    assert not failed, failed[:3]


# ------------------------------------------------------------------------- the broker


def kill_broker(
    server: Server, loads: Sequence[Load], number: int = signal.SIGKILL
) -> tuple[float, float, float]:
    """One round, under loads that go on.

    Return the milliseconds from the kill to the first answer to a request that was made after it,
    and until the server said that it is not ready, and that it is again.
    """
    [broker] = server.pids()["broker"]
    killed_ns = _kill(loads, broker, number)

    def has_noticed() -> bool:
        # Between two looks it may have been unready and be ready again.
        return not server.is_ready() or server.pids().get("broker") != [broker]

    eventually(has_noticed, 30, "the server is not ready")
    unready_ms = _since_ms(killed_ns)
    eventually(server.is_ready, 30, "the server is ready again")
    ready_ms = _since_ms(killed_ns)
    back_ms = _back_ms(loads, killed_ns)
    eventually(lambda: server.pids().get("broker") not in (None, [], [broker]), 30, "a new broker")
    return back_ms, unready_ms, ready_ms


def check_broker(server: Server, loads: Sequence[Load], stubs: list[int], kills: int) -> int:
    """The stubs are the same, and only what they executed may have failed; how many."""
    assert sorted(server.stub_pids("journal")) == sorted(stubs)
    assert {record.pid for record in read_journal(server.journal)} <= set(stubs)
    wrong = check_executed_once(server, answers_of(loads))
    executed = executions(server.journal)
    assert [o for o in wrong if o.id not in executed] == []
    assert len(wrong) <= kills * INSTANCES
    return len(wrong)


# -------------------------------------------------------------------------- frontends


def http_worker_pid(server: Server) -> int:
    """The one that serves."""
    [pid] = [pid for pid in server.pids()["http"] if not _is_child(server, pid)]
    return pid


def http_arbiter_pid(server: Server) -> int:
    """The one that the supervisor has started, and that started the other."""
    [pid] = [pid for pid in server.pids()["http"] if _is_child(server, pid)]
    return pid


def _is_child(server: Server, pid: int) -> bool:
    return psutil.Process(pid).ppid() == server.pid


def kill_http(server: Server, load: Load, choose: Callable[[Server], int]) -> float:
    """One round, under load; milliseconds until the next answer."""
    return _back_ms([load], _kill([load], choose(server)))


def check_http(server: Server, load: Load, max_wrong: int) -> None:
    """Only connections broke, at most so many; nothing was executed twice."""
    assert len(check_executed_once(server, load.answers, 0)) <= max_wrong


def kill_grpc(server: Server) -> float:
    """One round; milliseconds until a new connection is answered."""
    eventually(lambda: is_live(server), 30, "gRPC answers")
    [pid] = server.pids()["grpc"]
    killed_ns = time.monotonic_ns()
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not os.path.exists(f"/proc/{pid}"), 30, "its end")
    eventually(lambda: is_live(server), 30, "gRPC answers again")
    return _since_ms(killed_ns)


def is_live(server: Server) -> bool:
    with grpc.insecure_channel(server.grpc_address) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
        try:
            return bool(call(b"", timeout=0.5) == b"\x08\x01")
        except grpc.RpcError:
            return False


# --------------------------------------------------------------------- the supervisor


def kill_whole(server: Server) -> None:
    """Kill the supervisor, and wait until everything of the server is gone."""
    supervisor = psutil.Process(server.pid)
    processes = [supervisor, *supervisor.children(recursive=True)]
    server.kill()
    eventually(lambda: not any(map(_is_alive, processes)), 180, "everything of the server is gone")


def _is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def kill_supervisor(folder: Path) -> tuple[float, float]:
    """One round, with a server of its own.

    Return the milliseconds from the kill until no process, file, socket or port is left, and from
    the next start, over the same repository and ports, until it is ready.
    """
    mark = os.environ[leaks.MARK_VARIABLE]
    before = leaks.marked_processes(mark)
    runtime = folder / "run"
    options = [f"--runtime-directory={runtime}"]
    server = Server(folder / "s", models=["journal"], options=options, frontends=("grpc",)).start()
    ports = (server.http_port, server.grpc_port)
    with Load(server.http_port, clients=8, milliseconds=20):
        time.sleep(0.3)
        killed_ns = time.monotonic_ns()
        server.kill()

        def nothing_left() -> bool:
            processes = leaks.marked_processes(mark) - before
            files = runtime.exists() and any(runtime.iterdir())
            return not processes and not files and all(map(_is_free, ports))

        eventually(nothing_left, 30, "everything gone")
        gone_ms = _since_ms(killed_ns)
    started_ns = time.monotonic_ns()
    server.process = None
    server.start()
    ready_ms = _since_ms(started_ns)
    assert server.stop() == 0
    return gone_ms, ready_ms
