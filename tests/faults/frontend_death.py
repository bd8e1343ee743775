"""Kills frontends under load: nothing is executed twice, and a new one is there soon."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import grpc
import psutil

from tests.faults.broker_death import first_after
from tests.faults.load import Load, Outcome
from tests.support.journal import executions
from tests.support.server import Server
from tests.support.waiting import eventually

EXECUTION_MS = 20


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


def grpc_pid(server: Server) -> int:
    [pid] = server.pids()["grpc"]
    return pid


def kill_http_and_measure(
    server: Server, load: Load, choose: Callable[[Server], int] = http_worker_pid
) -> float:
    """One round, under load; milliseconds until the next answer."""
    pid = choose(server)
    before_ns = time.monotonic_ns()
    eventually(lambda: first_after([load], before_ns), 30, "answers before the kill")
    killed_ns = time.monotonic_ns()
    os.kill(pid, signal.SIGKILL)
    first = eventually(lambda: first_after([load], killed_ns), 30, "answers after the kill")
    return (first.ended_ns - killed_ns) / 1e6


def check(server: Server, outcomes: list[Outcome], max_wrong: int) -> None:
    """Only connections broke, at most so many; nothing was executed twice."""
    wrong = [o for o in outcomes if not o.is_right]
    assert [o for o in wrong if o.status != 0] == []
    assert len(wrong) <= max_wrong
    assert {own_id: n for own_id, n in executions(server.journal).items() if n > 1} == {}


def kill_grpc_and_measure(server: Server) -> float:
    """One round; milliseconds until a new connection is answered."""
    eventually(lambda: _is_live(server), 30, "gRPC answers")
    pid = grpc_pid(server)
    killed_ns = time.monotonic_ns()
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not os.path.exists(f"/proc/{pid}"), 30, "its end")
    eventually(lambda: _is_live(server), 30, "gRPC answers again")
    return (time.monotonic_ns() - killed_ns) / 1e6


def _is_live(server: Server) -> bool:
    with grpc.insecure_channel(server.grpc_address) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
        try:
            return bool(call(b"", timeout=0.5) == b"\x08\x01")
        except grpc.RpcError:
            return False
