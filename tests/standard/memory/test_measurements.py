"""The memory of processes, as the kernel tells it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.floor.reasons import because
from tests.supervisor.world import SupervisorHarness, make_blueprint
from zmqtriton.host.gpus import Gpu
from zmqtriton.supervisor.actions import Template
from zmqtriton_floor import wire
from zmqtriton_standard.memory import measurements, readings
from zmqtriton_standard.memory.measurements import HOST, MemoryQuestion, ModelProcesses, Sizes
from zmqtriton_standard.memory.readings import (
    family,
    gpu_memory_of,
    process_memory_bytes,
    read_shares,
)

MIB = 1 << 20
#: Keeps 64 MiB, written in the parent and shared with a fork that has 32 MiB of its own.
_LARGE = """
import os, sys
shared, ends = b'x' * (64 << 20), os.pipe()
if not os.fork():
    os.close(ends[1])
    own = b'y' * (32 << 20)
    print(flush=True)
    os._exit(len(os.read(ends[0], 1)))
os.close(ends[0])
sys.stdin.read()
os.close(ends[1])
os.wait()
"""


@contextmanager
def large_process() -> Iterator[int]:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", _LARGE], stdin=pipe, stdout=pipe) as large:
        assert large.stdout is not None
        large.stdout.readline()
        yield large.pid
        large.communicate()


@pytest.mark.slow
def test_a_model_has_the_memory_of_its_processes_and_their_children() -> None:
    """Shared pages count once."""
    with large_process() as pid:
        report = MemoryQuestion({pid: "m", 2**22 + 1: "gone"}, {})()

    assert report.available_bytes > 0
    assert 96 * MIB < report.by_model["m"][HOST] < 150 * MIB
    assert 0 == report.by_model["gone"][HOST]
    assert "" == report.gpu_problem


@pytest.mark.slow
def test_the_server_is_not_of_the_guest_that_has_started_it() -> None:
    with large_process() as pid:
        models = family({os.getppid(): "guest"})

    assert "guest" == models[os.getppid()]
    assert {os.getpid(), pid} & models.keys() == set()


def test_a_process_that_is_gone_takes_nothing() -> None:
    assert 0 == process_memory_bytes(2**22 + 1)


class OneGpu:
    """GPU 0 as NVIDIA's library reports it, in place of a call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, by_process: dict[int, int]) -> None:
        monkeypatch.setattr(Gpu, "chosen", lambda: [Gpu("GPU-0", 9.0)])
        monkeypatch.setattr(readings, "_used_by_process", lambda gpu: by_process)
        monkeypatch.setattr(Gpu, "used_memory", lambda gpu: (100, 1000))
        monkeypatch.setattr(measurements, "process_memory_bytes", lambda pid: 0)


@pytest.mark.slow
def test_memory_on_a_gpu_is_that_of_the_models_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    with large_process() as pid:
        [child] = [one for one in family({pid: "m"}) if one != pid]
        OneGpu(monkeypatch, {pid: 5, child: 7, 1: 50})
        report = MemoryQuestion({pid: "m"}, {3: ["m"], 0: ["m"]})()

    assert "there is no GPU 3; nvidia-smi lists them" == report.gpu_problem
    assert {"m": Sizes({0: 12})} == {name: +sizes for name, sizes in report.by_model.items()}


def test_without_a_list_of_processes_the_models_on_it_share_what_is_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    OneGpu(monkeypatch, {})

    report = MemoryQuestion({}, {0: ["m", "n"]})()

    assert {"m": Sizes({0: 50}), "n": Sizes({0: 50})} == report.by_model
    assert {} == MemoryQuestion({}, {0: []})().by_model


def test_the_template_of_forks_is_measured_and_models_are_known_by_gpu() -> None:
    world = SupervisorHarness(make_blueprint("m"), make_blueprint("n")).start()
    processes, questions = ModelProcesses(world.core.plan), list[MemoryQuestion]()
    world.answer_in_background = questions.append
    m, n = (world.generation(name) for name in ("m", "n"))
    m.template = Template(900, wire.LoadModel("", "m", 1, "GPU", 0, "", "", "{}", 0))
    m.instances[0].slot = m.instances[0].slot._replace(kind="GPU", device=1)
    for serial, pid in ((m.instances[0].serial, 11), (900, 12), (n.instances[0].serial, 13)):
        processes.process_started(serial, pid, 0.0)

    processes.measure([m, n], [0, 1])
    m.template = None
    processes.process_ended(n.instances[0].serial, because("it has ended"), "")
    processes.measure([m, n], [])
    world.run_until_idle()

    assert [
        MemoryQuestion({11: "m", 12: "m", 13: "n"}, {0: set(), 1: {"m"}}, {"m": [11]}),
        MemoryQuestion({11: "m"}, {}),
    ] == questions


@pytest.mark.slow
def test_what_a_process_has_on_gpus_includes_what_it_has_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with large_process() as pid:
        [child] = [one for one in family({pid: "m"}) if one != pid]
        OneGpu(monkeypatch, {pid: 5, child: 7, 1: 50})

        assert {pid: {"0": 12}} == gpu_memory_of({pid})
        assert {pid: {"0": 5}, child: {"0": 7}} == gpu_memory_of({pid, child})


@pytest.mark.slow
def test_private_and_shared_memory_of_a_process_are_told_apart() -> None:
    with large_process() as pid:
        shares = read_shares(pid)

    assert shares is not None
    assert 64 * MIB < shares.shared < 64 * MIB + shares.pss
    assert shares.private < shares.pss < shares.private + shares.shared
    assert read_shares(pid) is None
