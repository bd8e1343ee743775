"""Policies of hosts, quotas and networks; the Python and the environment of models."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from tests.floor.reasons import because, text_of
from tests.reading.test_model_reading import CONFIG, add, parameter, read
from tests.supervisor.readings import Readings
from tests.support.waiting import eventually
from zmqtriton import addons
from zmqtriton.config.parameters import Quota
from zmqtriton.environments.demand import Environment, variable_overrides
from zmqtriton.host import capacity
from zmqtriton.host.cores import cores_of_policy, pin_to_cores
from zmqtriton.options import Options, Setting, parse
from zmqtriton.reading.instance_slots import host_policy_name
from zmqtriton.reading.python_settings import PythonSettings, check_settings
from zmqtriton.start import listeners
from zmqtriton.supervisor.machine.directories.runtime import RuntimeDirectory
from zmqtriton.supervisor.machine.memory.segments import SegmentRegistry
from zmqtriton.supervisor.machine.process_settings import process_settings, read_policy
from zmqtriton.supervisor.machine.processes.child import Child
from zmqtriton.supervisor.machine.processes.commands import withheld
from zmqtriton.supervisor.machine.processes.quotas import (
    OomDetector,
    QuotaEnforcement,
    nice_value,
    own_memory_bytes,
)
from zmqtriton.supervisor.settings import Policy
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InvalidArgument, Unsupported
from zmqtriton_floor.reasons import Reason
from zmqtriton_floor.settings.offers import Offers

# ---------------------------------------------------------------------- policy reading
# The core's policy, as the options and the cores of this machine make it.


def policy(*arguments: str) -> Policy:
    return read_policy(parse(["--model-repository=/models", *arguments]))


@pytest.mark.parametrize(
    ("arguments", "roles"),
    [
        ([], {"http-arbiter", "grpc", "metrics"}),
        (["--allow-http=false"], {"grpc", "metrics"}),
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
@pytest.mark.extra("fleet")
def test_a_process_is_started_for_what_is_asked_for(arguments: list[str], roles: set[str]) -> None:
    assert roles == set(policy(*arguments).frontend_roles)


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
    with subprocess.Popen(
        [sys.executable, "-c", _GROWING], stdin=-1, stdout=-1, text=True, start_new_session=True
    ) as process:
        child = Child(5, process.pid, quota=Quota("m", max_memory_bytes=100 * MIB, cpu_weight=50))
        children[5] = child
        enforcement.begin(child)
        yield World(process, enforcement, segments, child, reports)
        process.kill()
    segments.close()


@pytest.mark.slow
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
        ("0::/a/b:c\n", "cgroup/a/b:c/memory.events"),
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


@pytest.mark.parametrize(("now_s", "text"), [(2.0, TOLD), (60.0, KILLED)])
def test_a_death_soon_after_the_counter_was_looked_at_is_told_and_a_late_one_not_blamed(
    machine: Machine, now_s: float, text: str
) -> None:
    machine.kill(4)
    machine.watched.poll(1.0)

    assert text == machine.watched.explain_death(because(KILLED), now_s).text


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
    monkeypatch.setattr(addons, "offers", Offers)

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

    monkeypatch.setattr(listeners, "own_addresses", lambda: LOOPBACK)
    assert options == listeners.widen(options)

    monkeypatch.setattr(listeners, "own_addresses", lambda: [*LOOPBACK, "2001:db8::7"])
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
    } == set(listeners.own_addresses())


# --------------------------------------------------------------------- python settings
# `--backend-config=python,...`: Triton's texts for what is wrong, and what becomes of the rest.


def settings(*entries: str) -> dict[str, str]:
    options = [f"--backend-config=python,{entry}" for entry in entries]
    return parse(["--model-repository=/m", *options]).backend_settings("python")


@pytest.mark.row("B01", "B02", "B03")
def test_defaults_are_tritons() -> None:
    assert PythonSettings(1 << 20, 1 << 20, 30.0) == PythonSettings.from_backend_config(settings())
    assert PythonSettings(1 << 21, 4096, 7.0) == PythonSettings.from_backend_config(
        settings(
            "shm-default-byte-size=2097152",
            "shm-growth-byte-size=4096",
            "stub-timeout-seconds=7",
        )
    )


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        pytest.param(
            "shm-default-byte-size=1048575",
            "shm-default-byte-size can't be smaller than 4 MiBs",
            id="B01",
        ),
        pytest.param(
            "shm-growth-byte-size=0",
            "shm-growth-byte-size can't be smaller than or equal to zero.",
            id="B02",
        ),
        pytest.param(
            "stub-timeout-seconds=0",
            "stub-timeout-seconds can't be smaller than or equal to zero.",
            id="B03",
        ),
        pytest.param("thread-pool-size=0", "thread-pool-size can't be less than 1.", id="B04"),
        pytest.param(
            "thread-pool-size=x", "thread-pool-size is 'x', which is no number", id="no number"
        ),
    ],
)
@pytest.mark.row("B01", "B02", "B03", "--backend-config")
def test_what_is_wrong_is_the_problem_of_every_python_model(
    tmp_path: Path, entry: str, text: str
) -> None:
    add(tmp_path, "m")
    options = parse([f"--model-repository={tmp_path}", f"--backend-config=python,{entry}"])

    blueprint = Readings(options).read_model("m")

    assert [(text, InvalidArgument.number)] == [
        (text_of(version.problem), getattr(version.problem, "number", 0))
        for version in blueprint.versions.values()  # type: ignore[union-attr]
    ]


@pytest.mark.row("B04", "B05")
def test_the_pool_has_a_least_size_and_the_prefix_a_character() -> None:
    with pytest.raises(InvalidArgument, match=r"^thread-pool-size can't be less than 1\.$"):
        check_settings({"thread-pool-size": "0"})
    with pytest.raises(InvalidArgument, match=r"^shm-region-prefix-name must at least contain"):
        check_settings({"shm-region-prefix-name": ""})
    check_settings({"shm-region-prefix-name": "prefix", "thread-pool-size": "1"})


@pytest.mark.row("B07", "K23")
def test_unknown_settings_are_accepted() -> None:
    options = parse(
        [
            "--model-repository=/m",
            "--backend-config=python,nobody=knows",
            "--backend-config=tensorflow,version=2",
            "--backend-config=default-max-batch-size=2",
        ]
    )

    check_settings(options.backend_settings("python"))

    assert {"nobody": "knows", "default-max-batch-size": "2"} == options.backend_settings("python")
    assert () == options.warnings


@pytest.mark.row("B03")
def test_a_load_may_take_longer_than_the_timeout_but_then_others_need_not_wait() -> None:
    options = parse(["--model-repository=/m", "--backend-config=python,stub-timeout-seconds=7"])

    assert 7.0 == read_policy(options).load_slot_timeout_s


@pytest.mark.row("B14")
def test_a_stub_beside_the_model_is_ignored_with_a_warning(tmp_path: Path) -> None:
    stub = add(tmp_path, "m") / "triton_python_backend_stub"
    stub.write_bytes(b"\x7fELF")

    blueprint = read(tmp_path, "m")

    assert blueprint.versions[1].problem is None
    assert [f"ignore {stub}: a stub for another Python is not needed"] == [
        warning.partition(";")[0] for warning in blueprint.warnings
    ]


@pytest.mark.row("B15")
def test_force_cpu_only_is_yes_or_no(tmp_path: Path) -> None:
    for value in ("yes", "no", "maybe"):
        add(tmp_path, value, parameter("FORCE_CPU_ONLY_INPUT_TENSORS", value))
    add(tmp_path, "none", CONFIG)

    versions = {name: read(tmp_path, name).versions[1] for name in ("yes", "no", "none", "maybe")}

    assert ["", "", "", "Incorrect value for FORCE_CPU_ONLY_INPUT_TENSORS: maybe'"] == [
        text_of(version.problem).partition(" (at ")[0] for version in versions.values()
    ]
    assert isinstance(versions["maybe"].problem, Unsupported)


@pytest.mark.row("B20")
def test_the_file_of_the_model_can_be_named_and_must_be_python(tmp_path: Path) -> None:
    named = 'default_model_filename: "{}"'
    for name, line in (
        ("usual", ""),
        ("other", named.format("other.py")),
        ("missing", named.format("missing.py")),
        ("text", named.format("model.txt")),
    ):
        (add(tmp_path, name, CONFIG + line) / "1" / "other.py").touch()

    versions = {n: read(tmp_path, n).versions[1] for n in ("usual", "other", "missing", "text")}

    assert [f"{tmp_path}/usual/1/model.py", f"{tmp_path}/other/1/other.py"] == [
        versions["usual"].path,
        versions["other"].path,
    ]
    missing = f"{tmp_path}/missing/1/missing.py"
    assert f"Python model file not found in '{missing}'" == text_of(versions["missing"].problem)
    assert text_of(versions["text"].problem) == (
        "Model name must end with '.py'. Model name is \"model.txt\"."
    )


@pytest.mark.row("B22", "B23")
def test_with_gpus_a_model_gets_an_instance_on_each(tmp_path: Path) -> None:
    add(tmp_path, "m")
    options = parse([f"--model-repository={tmp_path}"])

    with_gpus = Readings(options, gpus=(0, 1)).read_model("m")
    without = Readings(options).read_model("m")

    assert [("GPU", 0), ("GPU", 1)] == [
        (place.kind, place.device)
        for place in with_gpus.finalize_config("").slots  # type: ignore[union-attr]
    ]
    # Instances choose by that number; which GPUs they see is left as it is.
    assert "CUDA_VISIBLE_DEVICES" not in variable_overrides(Environment("/p", "/env"), {})
    assert [("CPU", 0)] == [
        (place.kind, place.device)
        for place in without.finalize_config("").slots  # type: ignore[union-attr]
    ]


# -------------------------------------------------------------------- process settings
# The settings that every process of the server gets.


@pytest.mark.parametrize(("named", "bound"), [("LOCALHOST", "127.0.0.1"), ("0.0.0.0", "0.0.0.0")])
def test_where_http_listens_is_an_address_whatever_the_option_calls_it(
    named: str, bound: str, tmp_path: Path
) -> None:
    no_others: dict[str, Any] = {"allow_grpc": False, "allow_metrics": False}
    options = Options(http_address=named, http_port=0, **no_others)
    sockets = listeners.bind_all(options)

    settings = process_settings(options, RuntimeDirectory(tmp_path, -1), None, sockets)
    listeners.close_all(sockets)

    assert (named, bound) == settings.frontend.http[1:3]


# ------------------------------------------------------------------- model environment
# Which variables models get.


_LOCAL = ("/srv/models",)


_STORES = {
    "s3://bucket/models": ["AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"],
    "gs://bucket/models": ["GOOGLE_APPLICATION_CREDENTIALS"],
    "as://account/container/models": ["AZURE_STORAGE_KEY"],
    "hf://org/name": ["HF_TOKEN"],
    "oci://registry/name": ["DOCKER_AUTH_CONFIG"],
}


@pytest.mark.parametrize(
    "name", ["DATABASE_URL", "HF_TOKEN", "BLS_KIND", "AWS_SECRET_ACCESS_KEY", "https_proxy", "PATH"]
)
def test_models_get_all_variables(name: str) -> None:
    assert {} == withheld({name: "x"}, (), _LOCAL)


@pytest.mark.parametrize(
    "name",
    [
        "NOTIFY_SOCKET",
        "LISTEN_FDS",
        "CREDENTIALS_DIRECTORY",
        "ZMQTRITON_OPTIONS",
        "ZMQTRITON_OPTION_HTTP_RESTRICTED_API",
    ],
)
def test_but_not_the_server_s_own(name: str) -> None:
    assert {name: "*"} == withheld({name: "x", "PATH": "y"}, (), _LOCAL)


@pytest.mark.extra("storage")
@pytest.mark.parametrize(("repository", "names"), _STORES.items())
def test_and_not_its_credentials_of_a_store_that_it_uses(repository: str, names: list[str]) -> None:
    environment = dict.fromkeys(["PATH", *(name for of in _STORES.values() for name in of)], "x")

    assert names == list(withheld(environment, (), (*_LOCAL, repository)))
    assert [] == list(withheld(environment, ["*"], (*_LOCAL, repository)))


@pytest.mark.parametrize(
    "name", ["PATH", "LC_ALL", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "PYTHONPATH", "HF_HOME"]
)
def test_what_libraries_need_passes_where_names_are_given(name: str) -> None:
    assert {} == withheld({name: "x"}, ("NAME",), _LOCAL)


@pytest.mark.parametrize(
    "name", ["AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "DATABASE_URL", "https_proxy", "PATHS", "XPATH"]
)
def test_anything_else_does_not(name: str) -> None:
    assert {name: name} == withheld({name: "x", "PATH": "y"}, ("NAME",), _LOCAL)


@pytest.mark.parametrize(
    ("named", "left"),
    [(("B",), ["A1", "A2"]), (("A*",), ["B"]), (("*",), []), (("A1", "B"), ["A2"])],
)
def test_what_is_named_passes(named: tuple[str, ...], left: list[str]) -> None:
    assert left == list(withheld(dict.fromkeys(("B", "A2", "A1"), "x"), named, _LOCAL))


# ---------------------------------------------------------------------------- capacity
# Readings of processes and processors.


@pytest.mark.slow
def test_a_process_that_computes_has_had_some_of_a_processor_and_wants_more() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            eventually(lambda: capacity.processor_use(process.pid).ticks > 5, 30, "it computes")
            assert capacity.processor_use(process.pid).is_runnable
        finally:
            process.kill()


def test_a_process_that_sleeps_wants_nothing() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            eventually(lambda: not capacity.processor_use(process.pid).is_runnable, 30, "it sleeps")
        finally:
            process.kill()
    assert (0, False) == capacity.processor_use(process.pid)


def test_at_least_one_may_compute() -> None:
    assert capacity.max_computing() >= len(os.sched_getaffinity(0))
