"""Machines and installations with one fault each: doctor names it, and its advice helps.

What a kernel tells is a file in a namespace of the doctor's own; what is installed, a directory.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from tests.standard.ctl.system.commands import OPTION
from tests.standard.ctl.system.commands import place as place_of
from tests.standard.tools.advice.world import code_of, program
from tests.standard.tools.system import broken_models as broken
from tests.standard.tools.system.test_broken_servers import (
    advised,
    as_nobody,
    doctor,
    in_namespace,
    is_silent,
)
from tests.support.certificates import Authority
from tests.support.needs import find_tool, skip_missing
from tests.support.server import Server

pytestmark = [
    pytest.mark.system,
    pytest.mark.long(
        "diagnosis/doctor/test_machine.py::test_memory_in_swap",
        "standard/tools/system/test_doctor.py::test_a_server_that_is_well_and_one_that_is_stopped",
    ),
]

_OTHER_VERSION = "import zmqtriton_floor\nzmqtriton_floor.__version__ = '99'\n"
_START = ("--", "--http-port=0")


def _told(**files: str) -> str:
    """Return shell commands that have the kernel tell this in files of /proc."""
    commands = ["mount -t tmpfs none /mnt"]
    for number, (path, text) in enumerate(files.items()):
        commands.append(f"printf {shlex.quote(text)} > /mnt/{number}")
        commands.append(f"mount --bind /mnt/{number} {path}")
    return " && ".join(commands)


def _grouped(**files: str) -> str:
    """Return shell commands that have the control group allow and use this."""
    commands = ["mount -t tmpfs none /sys/fs/cgroup"]
    for folder in ("", "/cpu", "/memory"):  # with version 1 each has a tree of its own
        commands.append(f"mkdir -p /sys/fs/cgroup{folder}")
        for name, text in files.items():
            commands.append(f"printf {shlex.quote(text)} > /sys/fs/cgroup{folder}/{name}")
    return " && ".join(commands)


@pytest.mark.parametrize(
    ("path", "fault", "cured", "cause", "advice"),
    [
        (
            "/proc/meminfo",
            r"MemTotal: 16000000 kB\nMemAvailable: 90000 kB\n",
            r"MemTotal: 16000000 kB\nMemAvailable: 9000000 kB\n",
            "of memory left",
            "The kernel kills processes when no memory is left. Unload models",
        ),
        (
            "/proc/pressure/cpu",
            "some avg10=0.00 avg60=90.00 avg300=0.00 total=1",
            "some avg10=0.00 avg60=1.00 avg300=0.00 total=1",
            "CPU is short",
            "Give the server a larger share: CPUWeight= of systemd",
        ),
        (
            "/proc/pressure/memory",
            "some avg10=0.00 avg60=90.00 avg300=0.00 total=1",
            "some avg10=0.00 avg60=1.00 avg300=0.00 total=1",
            "memory is short",
            "The kernel drops pages and reads them again",
        ),
        (
            "/proc/pressure/io",
            "some avg10=0.00 avg60=90.00 avg300=0.00 total=1",
            "some avg10=0.00 avg60=1.00 avg300=0.00 total=1",
            "disks are slow or busy",
            "Loads and starts take longer; requests only of models",
        ),
    ],
)
def test_a_machine_that_is_short_of_something(
    path: str, fault: str, cured: str, cause: str, advice: str
) -> None:
    if not os.path.exists(path):
        skip_missing(path)
    advised(doctor(*_START, wrapper=in_namespace(_told(**{path: fault}))), cause, advice)

    assert is_silent(doctor(*_START, wrapper=in_namespace(_told(**{path: cured}))), cause)


def test_a_kernel_that_promises_little_memory() -> None:
    fault, cause = _told(**{"/proc/sys/vm/overcommit_memory": "2"}), "promises no more memory"

    finding = advised(
        doctor(*_START, wrapper=in_namespace(fault)), cause, "Instances reserve more than they use"
    )
    command = finding["commands"][0].replace("sysctl", find_tool("sysctl"))

    assert is_silent(doctor(*_START, wrapper=in_namespace(f"{fault}; {command} >/dev/null")), cause)


def test_a_control_group_that_has_used_its_memory() -> None:
    used = {"memory.current": "990000000", "memory.events": "oom_kill 2"}
    words = (*_START,)
    full = doctor(*words, wrapper=in_namespace(_grouped(**{"memory.max": "1000000000", **used})))
    cause, killed = "the control group uses", "has killed a process of this control group"

    advised(full, cause, "Raise the container's limit (`docker run --memory`")
    advised(full, killed, "Raise the container's limit, or give models a quota")

    # a container that is started again with a higher limit counts anew
    used = {"memory.current": "990000000", "memory.events": "oom_kill 0"}
    raised = doctor(*words, wrapper=in_namespace(_grouped(**{"memory.max": "2000000000", **used})))
    assert is_silent(raised, cause)
    assert is_silent(raised, killed)


def test_a_control_group_that_allows_less_time_than_cores() -> None:
    if len(os.sched_getaffinity(0)) < 2:
        skip_missing("two cores")
    limited, cause = _grouped(**{"cpu.max": "100000 100000"}), "allows the time of 1 of"

    advised(
        doctor(*_START, wrapper=in_namespace(limited)),
        cause,
        "The server and numeric libraries start threads and processes for all cores",
    )

    pinned = (find_tool("taskset"), "-c", str(min(os.sched_getaffinity(0))))
    assert is_silent(doctor(*_START, wrapper=(*pinned, *in_namespace(limited))), cause)


def test_no_place_for_runtime_directories(tmp_path: Path) -> None:
    """The doctor stands where it may not write, either."""
    cause = "no runtime directory can be made"
    places = "/run /tmp /var/tmp /usr/tmp"
    closed = f"for one in {places}; do mount -t tmpfs -o ro none $one; done 2>/dev/null; "
    closed += "mount -t tmpfs none /mnt; cd /proc"
    variables = {"TMPDIR": "", "HOME": "/mnt"}

    advised(
        doctor(*_START, wrapper=in_namespace(closed), env=variables),
        cause,
        "Name one with --runtime-directory, or a writable TMPDIR.",
    )

    named = (*_START, "--runtime-directory=/mnt/run")
    assert is_silent(doctor(*named, wrapper=in_namespace(closed), env=variables), cause)
    variables = {"TMPDIR": "/mnt"}
    assert is_silent(doctor(*_START, wrapper=in_namespace(closed), env=variables), cause)


def test_a_clock_that_is_wrong(tmp_path: Path) -> None:
    """A server would refuse a certificate that is valid."""
    (tmp_path / "sitecustomize.py").write_text("import time\ntime.time = lambda: 1e9\n")
    pair = Authority(tmp_path).issue("server", days=90)
    pair.key.chmod(0o600)
    words = [*_START, "--grpc-use-ssl=true", f"--grpc-server-cert={pair.cert}"]
    words.append(f"--grpc-server-key={pair.key}")

    matches = doctor(*words, env={"PYTHONPATH": str(tmp_path)})
    advised(matches, "it is before this program was installed", "Certificates and tokens are jud")
    look = advised(matches, "is valid only from", "Is the clock right?")["commands"][0]
    assert "notBefore" in program(shlex.split(look)).stdout

    matches = doctor(*words)
    assert is_silent(matches, "it is before this program was installed")
    assert is_silent(matches, "is valid only from")


# ------------------------------------------------------------- installations


def _install(folder: Path, name: str, version: str) -> Path:
    """Have a package be installed where it comes before others."""
    record = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    record.mkdir()
    (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (record / "RECORD").write_text(f"{record.name}/METADATA,,\n{record.name}/RECORD,,\n")
    (record / "INSTALLER").write_text("pip\n")
    return record


def test_a_library_of_another_version_that_something_has_installed(tmp_path: Path) -> None:
    _install(tmp_path, "msgpack", "0.1")
    cause = "the library msgpack is 0.1; zmqtriton needs msgpack"

    advised(
        doctor(*_START, env={"PYTHONPATH": str(tmp_path)}),
        cause,
        "Something else has changed the environment. Install the server into one of its",
    )

    assert is_silent(doctor(*_START), cause)


def test_files_of_two_versions(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(_OTHER_VERSION)
    cause = "the code is zmqtriton 99, and its package says"

    advised(
        doctor(*_START, env={"PYTHONPATH": str(tmp_path)}),
        cause,
        "Files of two versions are mixed. Install it again.",
    )

    assert is_silent(doctor(*_START), cause)


def test_a_client_beside_the_server(tmp_path: Path) -> None:
    record = _install(tmp_path, "zmqtriton-client", "1")
    environment = {"PYTHONPATH": str(tmp_path)}
    cause = "zmqtriton-client 1 is installed beside the server"

    finding = advised(
        doctor(*_START, env=environment), cause, "Its removal would break the server. Remove it now"
    )
    remove, _again = map(shlex.split, finding["commands"])
    assert [sys.executable, "-m", "pip", "uninstall"] == remove[:4]
    shutil.rmtree(record)  # pip removes nothing that is outside of its environment

    assert is_silent(doctor(*_START, env=environment), cause)


def test_environments_without_their_builder(tmp_path: Path) -> None:
    uv = shutil.which("uv", path=os.path.dirname(sys.executable))
    if uv is None:
        skip_missing("uv beside the server")
    model = tmp_path / "models" / "m"
    (model / "1").mkdir(parents=True)
    (model / "1" / "model.py").write_text(code_of(broken.WORKS))
    (model / "config.pbtxt").write_text(broken.CONFIG)
    (model / "requirements.txt").write_text("numpy\n")
    words = ("--", f"--model-repository={model.parent}", "--build-environments")
    hidden, cause = in_namespace(f"mount --bind /dev/null {uv}"), "uv is missing, which builds"
    variables = {"PATH": "/usr/bin:/bin"}

    advised(doctor(*words, wrapper=hidden, env=variables), cause, "Install it beside the server.")

    assert is_silent(doctor(*words, env=variables), cause)


def test_a_library_for_gpus_where_there_is_none(tmp_path: Path) -> None:
    if [*Path("/dev").glob("nvidia[0-9]*")]:
        skip_missing("a machine without a GPU")
    _install(tmp_path, "cupy-cuda12x", "13.0")
    cause = "cupy 13.0 is installed, and no GPU can be seen"

    advised(
        doctor(*_START, env={"PYTHONPATH": str(tmp_path)}),
        cause,
        "In a container, use --gpus all. Without a GPU it is not needed.",
    )

    assert is_silent(doctor(*_START), cause)


@pytest.mark.parametrize(
    ("values", "cause", "advice"),
    [
        ({"Py_DEBUG": 1}, "is a debug build", "Install the server into a usual Python."),
        (
            {"CONFIG_ARGS": "'--prefix=/opt'", "PY_CORE_CFLAGS": "-O2"},
            "was built without --enable-optimizations",
            "Python of a distribution, of conda or of uv has it; of pyenv only with",
        ),
    ],
)
def test_a_python_that_is_slow(
    tmp_path: Path, values: dict[str, Any], cause: str, advice: str
) -> None:
    """Its build is as its file of settings tells."""
    if sys.base_prefix == "/usr" and "CONFIG_ARGS" in values:
        values = {**values, "prefix": "/opt"}
    build = {**sysconfig.get_config_vars(), **values}
    (tmp_path / "_other_build.py").write_text(f"build_time_vars = {build!r}\n")
    environment = {
        "PYTHONPATH": str(tmp_path),
        "_PYTHON_SYSCONFIGDATA_NAME": "_other_build",
    }
    if "CONFIG_ARGS" in values:  # those of distributions leave no trace of their own
        (tmp_path / "sitecustomize.py").write_text("import sys\nsys.base_prefix = '/opt'\n")

    advised(doctor(*_START, env=environment), cause, advice)

    if not sysconfig.get_config_var("Py_DEBUG"):
        assert is_silent(doctor(*_START, env={}), "is a debug build")


# ------------------------------------------------------------ other people


def test_a_server_of_another_version_or_user(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (site := tmp_path / "site").mkdir()
    (site / "sitecustomize.py").write_text(_OTHER_VERSION)
    options = [OPTION.replace("@DIRECTORY@", str(tmp_path))]
    with Server(tmp_path / "s", ["add_sub"], options=options, frontends=()) as server:

        def judge(*wrapper: str, **variables: str) -> list[Any]:
            line = [*wrapper, sys.executable, "-m", "zmqtriton.ctl.main", place_of(server)]
            done = subprocess.run(
                [*line, "doctor", "-o", "json"],
                env={**os.environ, **variables},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.stdout, done.stderr
            return json.loads(done.stdout)

        cause = ", and this program is 99"
        finding = advised(
            judge(PYTHONPATH=str(site)), cause, "Replace the server by `zmqtriton-ctl replace`, or"
        )
        assert program(shlex.split(finding["commands"][0])).stdout
        assert is_silent(judge(), cause)

        nobody = as_nobody()
        if subprocess.run([*nobody, sys.executable, "-c", "import zmqtriton"]).returncode:
            skip_missing("code that nobody may read")
        for parent in (tmp_path, *tmp_path.parents):
            if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
                parent.chmod(parent.stat().st_mode | 0o711)
        cause = f"a server in {run}"
        advised(
            judge(*nobody, HOME="/tmp", PYTHONDONTWRITEBYTECODE="1"),
            cause,
            "Ask as that user or as root.",
        )
        assert is_silent(judge(), cause)
