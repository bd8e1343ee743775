"""Ports, runtime directories, users, units, this Python and other installations."""

from __future__ import annotations

import errno
import importlib.metadata
import os
import shutil
import socket
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.diagnosis.doctor.findings import NOBODY, as_user, lacking, model, only, texts, write
from tests.support.needs import ROOT
from zmqtriton.commit import full_version
from zmqtriton.diagnosis.rules import programs, servers, systemd
from zmqtriton_floor import __version__

pytestmark = pytest.mark.slow

UNIT = "[Service]\nTimeoutStopSec=1min 5s\nLimitNOFILE=65536\nKillMode=mixed\n"
#: What systemd 252 prints, and what it means.
PRINTED = {
    "Result=success\nNRestarts=0\nActiveState=active\n": "",
    "Result=success\nNRestarts=0\nActiveState=activating\n": "",
    "Result=exit-code\nNRestarts=1\nActiveState=activating\n": "exit-code",
    "Result=watchdog\nNRestarts=5\nActiveState=failed\n": "watchdog",
    "Result=success\nNRestarts=2\nActiveState=activating\n": "a restart",
    "": "",
}


def test_models_in_trouble() -> None:
    assert "warning: m: 9 of 9 requests failed" == only(
        servers.judge_models([("m", "9 of 9 requests failed")])
    )

    many = texts(servers.judge_models([(f"m{number}", "not ready") for number in range(14)]))

    assert 11 == len(many)
    assert "warning: 4 more models are in trouble" == many[-1]


# ---------------------------------------------------------------------- ports


def ports(number: int, **more: object) -> dict[str, object]:
    return {"allow-http": True, "http-address": "127.0.0.1", "http-port": number, **more}


def test_a_port_in_use_is_told_with_its_holder() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        number = holder.getsockname()[1]
        used = only(servers.judge_ports(ports(number)))
        shared = texts(servers.judge_ports(ports(number, **{"reuse-http-port": True})))
    free = texts(servers.judge_ports(ports(number)))

    assert f"error: port {number} is in use by process {os.getpid()} (" in used
    assert used.endswith(f"so a server cannot start with --http-port={number}")
    assert [] == shared == free


def test_a_port_below_1024(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(end: socket.socket, address: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", fail)

    low, high = (only(servers.judge_ports(ports(number))) for number in (80, 8000))

    assert "error: --http-port=80: only root may open ports below 1024" == low
    assert "error: port 8000: Permission denied, so a server cannot start with" in high


def test_a_proxy_before_a_server_on_loopback(tmp_path: Path) -> None:
    for pid, name in ((7, "haproxy"), (8, "haproxy"), (9, "python3")):
        write(tmp_path / "proc" / str(pid) / "comm", f"{name}\n")
    elsewhere = ports(8000, **{"http-address": "0.0.0.0"})
    named = ports(8000, **{"http-allowed-host": ["models.example"]})

    text = only(servers.judge_reverse_proxies(ports(8000), tmp_path))

    assert "note: haproxy runs here, and a server on loopback answers 421 to names" in text
    for options in (elsewhere, named, ports(8000, **{"allow-http": False}), {}):
        assert [] == texts(servers.judge_reverse_proxies(options, tmp_path))
    assert [] == texts(servers.judge_reverse_proxies(ports(8000), tmp_path / "without"))


# -------------------------------------------------------- runtime directories


def test_a_runtime_directory_of_a_server_that_was_killed(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as end:
        end.bind(str(tmp_path / "ctl"))
        end.listen()
        living = texts(servers.judge_runtime_directories([tmp_path]))
    dead = only(servers.judge_runtime_directories([tmp_path, tmp_path / "other"]))

    assert [] == living
    assert f"note: a server that was killed has left {tmp_path}" == dead


def test_a_runtime_directory_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, problem in (
        (tmp_path / ("x" * 100), "its path is longer than"),
        (tmp_path / "file", "it is no directory"),
    ):
        assert problem in only(servers.judge_runtime_directories([], str(path)))
    assert [] == texts(servers.judge_runtime_directories([], str(tmp_path / "new")))


def test_a_server_that_says_nothing(tmp_path: Path) -> None:
    text = only(servers.judge_runtime_directories([], silent=tmp_path))

    assert f"error: the server in {tmp_path} is alive and does not answer" == text


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_a_server_of_another_user_is_told(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as end:
        end.bind(str(tmp_path / "ctl"))
        end.listen()
        with as_user(NOBODY):
            finding = only(servers.judge_runtime_directories([tmp_path]))

    text = f"a server in {tmp_path} would be another user's, and this user may not ask it"
    assert f"note: {text}" == finding


# -------------------------------------------------------------------- systemd


@pytest.mark.row("L13")
def test_settings_of_systemd(tmp_path: Path) -> None:
    folder = tmp_path / "etc/systemd/system"
    write(folder / "zmqtriton.service", f"{UNIT}ExecStart=/opt/zmqtriton/bin/zmqtriton --x\n")
    write(tmp_path / "opt/zmqtriton/bin/zmqtriton", "")
    write(tmp_path / "etc/zmqtriton/environment", 'ZMQTRITON_OPTIONS="--exit-timeout-secs=90"\n')
    options = {"exit-timeout-secs": 60, "exit-drain-secs": 0}
    well = texts(systemd.judge_units(options, tmp_path, is_running=True))
    drop_in = folder / "zmqtriton.service.d/override.conf"
    write(drop_in, "[Service]\nTimeoutStopSec=20\nLimitNOFILE=512:1024\nKillMode=process\n")
    (tmp_path / "opt/zmqtriton/bin/zmqtriton").unlink()

    judged = texts(systemd.judge_units(options, tmp_path, is_running=True))

    assert [] == well
    assert "--exit-timeout-secs=90" == systemd.read_unit_options(tmp_path)
    assert [] == lacking(
        judged,
        "starts /opt/zmqtriton/bin/zmqtriton, which does not exist",
        "kills the server 20 s after a stop, and the server may take 60 s",
        "allows 1024 file descriptors",
        "has KillMode=process",
    )


def test_the_unit_as_it_is_delivered_is_well(tmp_path: Path) -> None:
    unit = ROOT / "deploy" / "systemd" / "zmqtriton.service"
    settings = [line for line in unit.read_text().splitlines() if not line.startswith("ExecStart")]
    write(tmp_path / "etc/systemd/system/zmqtriton.service", "\n".join(settings))

    assert [] == texts(systemd.judge_units({}, tmp_path, is_running=True))
    assert {"TimeoutStopSec=45", "LimitNOFILE=65536", "KillMode=mixed"} <= set(settings)


@pytest.mark.parametrize("printed", PRINTED)
def test_a_unit_that_does_not_stay_up_is_found(printed: str, tmp_path: Path) -> None:
    path = tmp_path / "etc/systemd/system/zmqtriton.service"
    write(path, UNIT)

    down = texts(systemd.judge_units({}, tmp_path, ask=lambda unit: printed))
    up = texts(systemd.judge_units({}, tmp_path, is_running=True, ask=lambda unit: printed))

    failure = PRINTED[printed]
    text = f"error: {path} does not stay up: its last run ended with {failure}"
    assert ([text] if failure else []) == down
    assert [] == up


# ----------------------------------------------------------- users and environment


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can try what another user may read")
def test_a_repository_that_the_models_user_cannot_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Python and the environment of the tests may be below a closed directory, such as root's home
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    monkeypatch.setattr(sys, "executable", python or os.path.realpath(sys.executable))
    model(tmp_path / "models", "m")
    tmp_path.chmod(0o700)

    text = only(servers.judge_stub_users(["nobody"], [str(tmp_path / "models")]))

    assert f"error: models cannot run as nobody: it must be able to read {tmp_path}" in text


def test_a_user_that_does_not_exist() -> None:
    text = only(servers.judge_stub_users(["no-such-user"], []))

    assert "there is no user 'no-such-user'" in text


def test_a_proxy_that_catches_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "example.org")
    caught = only(servers.judge_proxies())
    monkeypatch.setenv("no_proxy", "localhost,127.0.0.1")

    assert "warning: http_proxy=http://proxy:3128 sends requests for localhost" in caught
    assert [] == texts(servers.judge_proxies())


def test_a_home_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert [] == texts(servers.judge_home())
    monkeypatch.setenv("HOME", "/nowhere")

    text = only(servers.judge_home())

    assert "note: the home directory cannot be used: there is no /nowhere" == text


# ---------------------------------------------------------- the file of options


def test_a_file_of_options_that_has_changed_since_the_start_is_told(tmp_path: Path) -> None:
    file = tmp_path / "options.toml"
    file.write_text("http-port = 9000\n")
    changed_s = file.stat().st_mtime

    assert [] == texts(servers.judge_option_file(str(file), changed_s + 5))
    text = only(servers.judge_option_file(str(file), changed_s - 5))
    assert f"note: {file}, the file of --config, has changed since the server started" == text
    assert [] == texts(servers.judge_option_file("", 1.0))


def test_a_library_of_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    well = texts(programs.judge_packages())
    metadata = "Metadata-Version: 2.1\nName: falcon\nVersion: 3.0\n"
    write(tmp_path / "falcon-3.0.dist-info" / "METADATA", metadata)
    monkeypatch.syspath_prepend(str(tmp_path))

    text = only(programs.judge_packages())

    assert [] == well
    assert "error: the library falcon is 3.0; zmqtriton needs falcon" in text


def test_the_clients_package_beside_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    well = [*programs.judge_installations()]
    metadata = "Metadata-Version: 2.1\nName: zmqtriton-client\nVersion: 7.8\n"
    write(tmp_path / "zmqtriton_client-7.8.dist-info" / "METADATA", metadata)
    monkeypatch.syspath_prepend(str(tmp_path))

    [finding] = [one for one in programs.judge_installations() if one not in well]

    assert "warning: zmqtriton-client 7.8 is installed beside the server" in only([finding])
    removal, installation = finding.commands
    assert removal.endswith("-m pip uninstall --yes zmqtriton-client")
    assert "-m pip install --force-reinstall" in installation


@pytest.mark.parametrize(
    ("markers", "is_for_here"),
    [
        ("", True),
        (' python_version < "3"', False),
        (' python_version >= "3.8"', True),
        (' python_version >= "3.8" and extra == "ray"', False),
        (" extra == 'ray'", False),
        (' sys_platform != "win32"', True),
        (' sys_platform == "win32"', False),
    ],
)
def test_libraries_are_needed_where_their_markers_hold(markers: str, is_for_here: bool) -> None:
    assert is_for_here == programs.is_for_here(markers)


@pytest.mark.parametrize(
    ("version", "conditions", "is_accepted"),
    [
        ("4.1.0", ">=4.1,<5", True),
        ("5.0", ">=4.1,<5", False),
        ("4.0.9", ">=4.1,<5", False),
        ("27.0.1rc1", ">=27,<28", True),
        ("1.0", "", True),
        ("", "", False),
    ],
)
def test_versions_are_compared_by_their_numbers(
    version: str, conditions: str, is_accepted: bool
) -> None:
    assert is_accepted == programs.is_accepted(version, conditions)


def test_another_installation_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside = os.path.dirname(sys.executable)
    monkeypatch.setenv("PATH", beside)
    well = texts(programs.judge_installations())
    other = tmp_path / "zmqtriton"
    write(other, "#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{beside}")
    text = only(programs.judge_installations())
    other.unlink()
    other.symlink_to(f"{beside}/zmqtriton")

    assert [] == well
    assert f"note: PATH has another installation: {other}" == text
    assert [] == texts(programs.judge_installations()), "a link to this one"


def test_a_server_and_files_of_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    version, own = importlib.metadata.version("zmqtriton"), full_version()
    monkeypatch.setattr(programs, "__version__", "0.0.1")

    of_server, mixed = texts(programs.judge_installations(7, "9+0123456789ab"))

    assert (
        f"warning: the server is zmqtriton 9+0123456789ab, and this program is {own}" == of_server
    )
    assert f"warning: the code is zmqtriton 0.0.1, and its package says {version}" == mixed


def test_a_server_and_a_package_of_this_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = f"{__version__}+20260131120000.g0123456789ab"
    metadata = f"Metadata-Version: 2.1\nName: zmqtriton\nVersion: {version}\n"
    write(tmp_path / f"zmqtriton-{version}.dist-info" / "METADATA", metadata)
    monkeypatch.syspath_prepend(str(tmp_path))

    assert [] == texts(programs.judge_installations(7, full_version()))


def test_pythons_that_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"CONFIG_ARGS": "'--prefix=/opt'", "PY_CORE_CFLAGS": "-O3", "Py_DEBUG": 0}
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: settings[name])
    monkeypatch.setattr(sys, "base_prefix", "/opt")
    slow = only(programs.judge_interpreter())
    settings["Py_DEBUG"] = 1
    debug = only(programs.judge_interpreter())
    settings.update(Py_DEBUG=0, CONFIG_ARGS="--enable-optimizations")

    assert f"note: {sys.executable} was built without --enable-optimizations" in slow
    assert f"warning: {sys.executable} is a debug build" in debug
    assert [] == texts(programs.judge_interpreter())
