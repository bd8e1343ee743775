"""Policies of hosts, quotas and networks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests.floor.reasons import because
from tests.support.waiting import eventually
from zmqtriton import addons
from zmqtriton.config.parameters import Quota
from zmqtriton.options import Options, Setting, parse
from zmqtriton.supervisor.machine import listeners
from zmqtriton.supervisor.machine.instance_slots import (
    cores_of_policy,
    host_policy_name,
    pin_to_cores,
)
from zmqtriton.supervisor.machine.policy_reading import read_policy
from zmqtriton.supervisor.machine.processes.child import Child
from zmqtriton.supervisor.machine.quotas import (
    OomDetector,
    QuotaEnforcement,
    nice_value,
    own_memory_bytes,
)
from zmqtriton.supervisor.machine.segments import SegmentRegistry
from zmqtriton.supervisor.settings import Policy
from zmqtriton_floor import wire
from zmqtriton_floor.reasons import Reason

# ---------------------------------------------------------------------- policy reading
# The core's policy, as the options and the cores of this machine make it.


def policy(*arguments: str) -> Policy:
    return read_policy(parse(["--model-repository=/models", *arguments]))


@pytest.mark.parametrize(("cores", "processes"), [(1, 1), (2, 1), (3, 1), (4, 2), (9, 4)])
def test_every_second_core_has_a_grpc_process(
    monkeypatch: pytest.MonkeyPatch, cores: int, processes: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))

    assert processes == policy().frontend_roles.count("grpc")
    assert 3 == policy("--grpc-processes=3").frontend_roles.count("grpc")


@pytest.mark.parametrize(
    ("arguments", "roles"),
    [
        ([], {"http-arbiter", "grpc", "metrics"}),
        (["--allow-http=false"], {"grpc", "metrics"}),
        (["--allow-http=false", "--allow-sagemaker=true"], {"http-arbiter", "grpc", "metrics"}),
        (["--allow-http=false", "--allow-vertex-ai=true"], {"http-arbiter", "grpc", "metrics"}),
        (["--allow-grpc=false"], {"http-arbiter", "metrics"}),
        (["--allow-metrics=false"], {"http-arbiter", "grpc"}),
        (["--allow-metrics=false", "--agent-check-port=9"], {"http-arbiter", "grpc", "metrics"}),
        (["--announce=127.0.0.1:9"], {"http-arbiter", "grpc", "metrics", "announcer"}),
        (
            ["--trace-config=triton,file=/tmp/t", "--trace-config=level=TIMESTAMPS"],
            {"http-arbiter", "grpc", "metrics", "tracer"},
        ),
    ],
)
def test_a_process_is_started_for_what_is_asked_for(arguments: list[str], roles: set[str]) -> None:
    assert roles == set(policy(*arguments).frontend_roles)


def test_a_vertex_ai_model_counts_where_its_endpoints_are_served() -> None:
    assert policy().vertex_ai_default_model is None
    assert (
        "m"
        == policy("--allow-vertex-ai=true", "--vertex-ai-default-model=m").vertex_ai_default_model
    )


def test_directories_are_absolute_and_stores_keep_their_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir("/")

    repositories = policy(
        "--model-repository=some", "--model-repository=s3://bucket/x"
    ).repositories

    assert ("/models", "/some", "s3://bucket/x") == repositories


def test_stubs_are_forked_where_they_can_be() -> None:
    assert policy().has_fork_server


# ----------------------------------------------------------------------- host policies
# On which cores instances run.


def test_the_policy_is_the_groups_or_that_of_its_kind() -> None:
    assert ["mine", "gpu_1", "cpu", "model"] == [
        host_policy_name(*instance)
        for instance in (("mine", "GPU", 1), ("", "GPU", 1), ("", "CPU", 0), ("", "MODEL", 0))
    ]


def test_cores_are_those_of_the_node_and_those_that_are_named(tmp_path: Path) -> None:
    (tmp_path / "node1").mkdir()
    (tmp_path / "node1" / "cpulist").write_text("4-7,12-15\n")
    settings = [
        Setting("both", "numa-node", "1"),
        Setting("both", "cpu-cores", "6-13"),
        Setting("node", "numa-node", "1"),
        Setting("cores", "cpu-cores", "2,0"),
        Setting("cores", "else", "9"),
        Setting("lost", "numa-node", "5"),
    ]

    cores = {
        n: cores_of_policy(settings, n, tmp_path) for n in ("both", "node", "cores", "lost", "none")
    }

    assert {
        "both": (6, 7, 12, 13),
        "node": (4, 5, 6, 7, 12, 13, 14, 15),
        "cores": (0, 2),
        "lost": (),
        "none": (),
    } == cores


def test_all_threads_of_a_process_are_pinned(caplog: pytest.LogCaptureFixture) -> None:
    core = max(os.sched_getaffinity(0))
    script = (
        "import threading as t; e = t.Event(); t.Thread(target=e.wait).start();"
        "print(flush=True); input(); e.set()"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()

        pin_to_cores(process.pid, (core,))

        threads = [int(name) for name in os.listdir(f"/proc/{process.pid}/task")]
        assert 2 == len(threads)
        assert [{core}] * 2 == [os.sched_getaffinity(thread) for thread in threads]
        pin_to_cores(process.pid, (8191,))
        process.stdin.write(b"\n")
    assert f"process {process.pid} cannot be kept on cores [8191]" in caplog.text


# ------------------------------------------------------------------------------ quotas
# Limits of processes where the kernel does not see to them: real processes, measured.


MIB = 1 << 20


#: Takes as many MiB as each line says; a fork has them, too, where it says `fork`.
_GROWING = """
import os, sys
kept = []
for line in sys.stdin:
    if line == "fork\\n" and os.fork() == 0:
        kept.append(b"y" * (60 << 20))
        print("forked", flush=True)
        sys.stdin.read()
        os._exit(0)
    if line != "fork\\n":
        kept.append(b"x" * (int(line) << 20))
        print("grown", flush=True)
"""


class World(NamedTuple):
    process: subprocess.Popen[str]
    enforcement: QuotaEnforcement
    segments: SegmentRegistry
    child: Child
    reports: list[tuple[int, Reason]]

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        self.process.stdout.readline()
        self.enforcement.poll()


@pytest.fixture
def world() -> Iterator[World]:
    reports: list[tuple[int, Reason]] = []
    children: dict[int, Child] = {}
    segments = SegmentRegistry(1 << 30, lambda serial, message, descriptor: None)
    enforcement = QuotaEnforcement(children, segments, lambda *what: reports.append(what))
    command = [sys.executable, "-c", _GROWING]
    with subprocess.Popen(
        command, stdin=-1, stdout=-1, text=True, start_new_session=True
    ) as process:
        child = Child(5, process.pid, quota=Quota("m", max_memory_bytes=100 * MIB, cpu_weight=50))
        children[5] = child
        enforcement.begin(child)
        yield World(process, enforcement, segments, child, reports)
        process.kill()
    segments.close()


@pytest.mark.row("L22")
def test_a_process_that_grows_beyond_its_limit_is_reported_once(world: World) -> None:
    world.tell("60")
    assert [] == world.reports
    assert 60 * MIB <= world.enforcement.use_of("m").memory_bytes < 100 * MIB

    world.tell("60")
    world.enforcement.poll()

    [(serial, reason)] = world.reports
    used = world.enforcement.use_of("m").memory_bytes
    assert (5, f"it used {used} of at most {100 * MIB} bytes (max_memory_bytes)") == (
        serial,
        reason.text,
    )
    assert 1 == world.enforcement.use_of("m").memory_excesses


@pytest.mark.row("L22")
def test_the_memory_of_descendants_and_of_segments_counts(world: World) -> None:
    world.segments.handle_message(5, wire.CreateSegment(1, 30 * MIB))
    world.enforcement.poll()
    before = world.enforcement.use_of("m").memory_bytes
    assert before > 30 * MIB

    world.tell("fork")

    assert world.enforcement.use_of("m").memory_bytes >= before + 60 * MIB


@pytest.mark.row("L22")
def test_the_dead_have_no_memory(world: World) -> None:
    world.process.kill()
    world.process.wait()

    killed = because("killed by SIGKILL")
    assert killed == world.enforcement.end(world.child, killed)
    world.enforcement.poll()

    assert 0 == world.enforcement.use_of("m").memory_bytes
    assert 0 == own_memory_bytes(world.process.pid)


@pytest.mark.row("L22")
def test_a_weight_becomes_a_nice_value(world: World) -> None:
    usual = os.getpriority(os.PRIO_PROCESS, 0)

    eventually(lambda: os.getpriority(os.PRIO_PROCESS, world.process.pid) == usual + 3, 60)
    assert usual == os.getpriority(os.PRIO_PROCESS, 0)


@pytest.mark.row("L22")
@pytest.mark.parametrize(
    ("weight", "nice"), [(100, 0), (125, -1), (80, 1), (200, -3), (1, 19), (10_000, -20)]
)
def test_nice_values_have_the_kernels_ratio(weight: int, nice: int) -> None:
    assert nice == nice_value(weight)


# ------------------------------------------------------------------- out of memory
KILLED = "killed by SIGKILL"


TOLD = "killed by SIGKILL, by the kernel: out of memory"


class Machine:
    """A machine whose files a test writes."""

    def __init__(self, directory: Path, group: str, counter: str) -> None:
        self.proc, self.groups = directory / "proc", directory / "cgroup"
        self.counter = directory / counter
        for path in (self.proc / "self", self.groups, self.counter.parent):
            path.mkdir(parents=True, exist_ok=True)
        (self.proc / "self" / "cgroup").write_text(group)
        (self.proc / "vmstat").write_text("pgfault 7\noom_kill 0\n")
        self.kill(3)
        self.watched = OomDetector(self.proc, self.groups)

    def kill(self, count: int) -> None:
        self.counter.write_text(f"low 0\noom_kill {count}\noom_group_kill 0\n")


@pytest.fixture(
    params=[
        ("0::/a/b\n", "cgroup/a/b/memory.events"),
        ("4:cpu,memory:/x\n0::/\n", "cgroup/memory/x/memory.oom_control"),
        ("1:cpu:/x\n", "proc/vmstat"),
        ("", "proc/vmstat"),
    ],
    ids=["version 2", "version 1", "no group", "no controllers"],
)
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    return Machine(tmp_path, *request.param)


def test_a_death_by_the_kernel_for_want_of_memory_is_told(machine: Machine) -> None:
    machine.kill(4)

    assert TOLD == machine.watched.explain_death(because(KILLED), 1.0).text


def test_a_death_that_is_found_after_the_counter_was_looked_at_is_told(machine: Machine) -> None:
    machine.kill(4)
    machine.watched.poll(1.0)

    assert TOLD == machine.watched.explain_death(because(KILLED), 2.0).text


def test_who_is_killed_long_after_another_had_no_memory_is_not_blamed(machine: Machine) -> None:
    machine.kill(4)
    machine.watched.poll(1.0)

    assert KILLED == machine.watched.explain_death(because(KILLED), 60.0).text


def test_kills_from_before_the_start_do_not_count(machine: Machine) -> None:
    assert KILLED == machine.watched.explain_death(because(KILLED), 0.0).text


def test_who_died_of_something_else_was_not_killed_for_memory(machine: Machine) -> None:
    machine.kill(4)

    exited = because("exited with status 1")
    assert exited == machine.watched.explain_death(exited, 1.0)


def test_where_nothing_can_be_read_nothing_is_told(tmp_path: Path) -> None:
    assert KILLED == OomDetector(tmp_path, tmp_path).explain_death(because(KILLED), 1.0).text


def test_without_the_add_on_of_control_groups_the_server_looks_itself(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addons, "part", lambda name: "")

    world.enforcement.prepare_groups()

    assert "the add-on 'control_groups' is not installed" in world.enforcement.means


# ---------------------------------------------------------------------------- networks
# Which machines have no IPv4, and what all addresses are there.


LOOPBACK = ["127.0.0.1", "::1"]


@pytest.mark.parametrize(
    ("addresses", "is_so"),
    [
        (LOOPBACK, False),
        (["::1"], True),
        (["127.0.0.1"], False),
        ([], False),
        ([*LOOPBACK, "10.0.0.7"], False),
        ([*LOOPBACK, "10.0.0.7", "fe80::1%eth0"], False),
        ([*LOOPBACK, "10.0.0.7", "2001:db8::7"], False),
        ([*LOOPBACK, "2001:db8::7", "fe80::1%eth0"], True),
        # a pod of an IPv6 cluster, whose way out to IPv4 is a link of its own
        ([*LOOPBACK, "fd00::7", "169.254.172.3"], True),
    ],
)
def test_machines_that_others_reach_by_ipv6_alone(addresses: list[str], is_so: bool) -> None:
    assert is_so == listeners.has_only_ipv6(addresses)


def test_all_addresses_are_those_that_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options(grpc_address="127.0.0.1", metrics_address="0.0.0.0")

    monkeypatch.setattr(listeners, "_own_addresses", lambda: LOOPBACK)
    assert options == listeners.widen(options)

    monkeypatch.setattr(listeners, "_own_addresses", lambda: [*LOOPBACK, "2001:db8::7"])
    wide = listeners.widen(options)
    assert ("::", "127.0.0.1", "::") == (
        wide.http_address,
        wide.grpc_address,
        wide.metrics_address,
    )


def test_the_addresses_of_this_machine_are_found() -> None:
    rows = [row for each in psutil.net_if_addrs().values() for row in each]

    assert {
        r.address.partition("%")[0] for r in rows if r.family in (socket.AF_INET, socket.AF_INET6)
    } == set(listeners._own_addresses())
