"""The unit for systemd: what it says fits what the server does, and systemd understands it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT, skip_missing
from zmqtriton.options import Options

DEPLOY = ROOT / "deploy" / "systemd"
UNIT = DEPLOY / "zmqtriton.service"
#: systemd's exposure level, times ten. It counts what the supervisor may do, not what models may.
MOST_EXPOSED = 32


def settings() -> dict[str, list[str]]:
    """Every assignment of the unit, in the order of the file."""
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text("utf-8").splitlines():
        key, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


def seconds(key: str) -> float:
    (value,) = settings()[key]
    return float(value)


@pytest.fixture
def analyze() -> str:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        skip_missing("systemd-analyze")
    assert tool is not None
    return tool


@pytest.mark.parametrize("has_sequences", [False, True])
def test_haproxy_accepts_its_configuration(tmp_path: Path, has_sequences: bool) -> None:
    text = (ROOT / "deploy" / "haproxy" / "haproxy.cfg").read_text("utf-8")
    if has_sequences:
        text = text.replace("    #   ", "    ")
        assert 2 == text.count("\n    option persist\n")
    (tmp_path / "haproxy.cfg").write_text(text)
    tool = shutil.which("haproxy") or "/usr/sbin/haproxy"
    if not Path(tool).exists():
        skip_missing("haproxy")

    done = subprocess.run(
        [tool, "-c", "-f", tmp_path / "haproxy.cfg"], capture_output=True, text=True
    )

    assert 0 == done.returncode, done.stderr


def test_requests_under_way_have_the_time_that_the_server_gives_them() -> None:
    assert seconds("TimeoutStopSec") > Options().exit_timeout_secs + 5


def test_the_server_speaks_for_itself_and_ends_as_a_whole() -> None:
    unit = settings()

    assert ["notify"] == unit["Type"]
    assert ["main"] == unit["NotifyAccess"]
    assert ["mixed"] == unit["KillMode"]
    assert ["on-failure"] == unit["Restart"]
    assert seconds("WatchdogSec") > 0


def test_ctl_looks_where_the_unit_has_the_sockets() -> None:
    (name,) = settings()["RuntimeDirectory"]
    client = (ROOT / "zmqtriton" / "ctl" / "client.py").read_text("utf-8")

    assert f'Path("/run/{name}")' in client
    assert ["0700"] == settings()["RuntimeDirectoryMode"]


@pytest.mark.parametrize(
    "setting",
    ["MemoryDenyWriteExecute", "PrivateDevices", "PrivateIPC", "PrivateUsers", "ProtectProc"],
)
def test_what_models_need_is_not_taken_away(setting: str) -> None:
    assert setting not in settings()


def test_the_users_are_those_that_sysusers_makes() -> None:
    lines = (DEPLOY / "sysusers.d.conf").read_text("utf-8").splitlines()
    server, models = [line.split()[1] for line in lines if line.startswith("u ")]

    assert settings()["User"] == [server]
    assert f" --stub-user={models} " in settings()["ExecStart"][0]
    assert models in settings()["SupplementaryGroups"][0].split()
    assert f"m {server} {models}" in lines


def test_systemd_understands_the_unit(analyze: str, tmp_path: Path) -> None:
    # Program and user are not installed where this runs.
    text = re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", UNIT.read_text("utf-8"))
    text = re.sub(r"(?m)^(User|Group|SupplementaryGroups)=.*$", "", text)
    unit = tmp_path / UNIT.name
    unit.write_text(text, "utf-8")

    verified = subprocess.run(
        [analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )

    assert (0, "") == (verified.returncode, verified.stderr)


def test_the_service_exposes_little(analyze: str) -> None:
    rated = subprocess.run(
        [analyze, "security", "--offline=yes", f"--threshold={MOST_EXPOSED}", str(UNIT)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == rated.returncode, rated.stdout
