"""The cores that real processes have, for each kind of instances."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.standard.ctl.system.commands import OPTION, ctl
from tests.support.scripted import add_model, generate, string_parameter
from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton_extras.cores.dealing import deal
from zmqtriton_extras.cores.machine import cpu_list, read_machine

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(options=["--model-control-mode=explicit", OPTION]),
]

_KINDS = ("processes", "forks", "threads")
#: Prints the cores, the variables, and the number that OpenBLAS has, which a fork did not load.
_VIEW = """
    import ctypes, os
    with open("/proc/self/maps") as maps:
        paths = {line.split(None, 5)[-1].strip() for line in maps if "openblas" in line}
    blas = [ctypes.c_int.in_dll(ctypes.CDLL(path), "blas_cpu_number").value for path in paths]
    names = "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"
    told = [int(os.environ[name]) for name in names]
    return [reply(json.dumps([sorted(os.sched_getaffinity(0)), [*told, *blas]]))]
"""


def prepare(server: Server) -> None:
    for kind in _KINDS:
        parameters = string_parameter("INSTANCES", kind) + string_parameter("CORES", "auto")
        add_model(server, "scripted", kind, parameters)
        server.edit_config(kind, "count: 1", "count: 2")


@contextmanager
def loaded(server: Server, *models: str) -> Iterator[None]:
    for model in models:
        assert "" == server.control_model("load", model)
    try:
        yield
    finally:
        for model in models:
            server.control_model("unload", model)
        eventually(lambda: not any(server.stub_pids(model) for model in models), 30)


@pytest.mark.parametrize("kind", _KINDS)
def test_instances_have_sets_of_cores_and_threads_to_match(server: Server, kind: str) -> None:
    shares = deal(read_machine(), {0: 0, 1: 0})
    sets = [[*share.cpus] for share in shares.values()]
    with loaded(server, kind):
        cores, numbers = json.loads(generate(server, kind, _VIEW))
        explained = ctl(server, "explain", kind).stdout

    assert cores in sets
    assert {shares[0].threads} == {*numbers}
    listed = ", ".join(f"{kind}_0_{i}: {cpu_list(cpus)}" for i, cpus in enumerate(sets))
    assert f"cores of its instances: {listed}" in explained


def test_running_instances_move_for_others_with_all_their_threads(server: Server) -> None:
    def threads_on(pid: int) -> set[frozenset[int]]:
        threads = os.listdir(f"/proc/{pid}/task")
        return {frozenset(os.sched_getaffinity(int(thread))) for thread in threads}

    shares = deal(read_machine(), dict.fromkeys(range(4), 0))
    sizes = [len(share.cpus) for share in shares.values()]
    with loaded(server, "processes"):
        pids = server.stub_pids("processes")
        before = [*map(threads_on, pids)]
        with loaded(server, "forks"):
            others = server.stub_pids("forks")

            def sizes_now() -> list[int]:
                return [len(one) for pid in (*pids, *others) for one in threads_on(pid)]

            eventually(lambda: sizes == sizes_now(), 30)
            now = [*map(threads_on, pids)]

    assert all(new <= old for [new], [old] in zip(now, before, strict=True))
