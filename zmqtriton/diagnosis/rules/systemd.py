"""The units of systemd that start the server, with their edits."""

from __future__ import annotations

import math
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from zmqtriton.diagnosis.facts.readings import ROOT, read
from zmqtriton.findings import Finding

_FOLDERS = ("etc/systemd/system", "usr/lib/systemd/system", "lib/systemd/system")
_NAMES = ("zmqtriton.service", "zmqtriton@.service")
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_UNITS_S = {"": 1, "s": 1, "sec": 1, "ms": 0.001, "m": 60, "min": 60, "h": 3600, "hr": 3600}
_FEW_DESCRIPTORS = 4096
#: Default of --exit-timeout-secs, for a server with unknown options.
_EXIT_TIMEOUT_S = 30
#: There while systemd is process 1.
_BOOTED = Path("/run/systemd/system")
_TIMEOUT_S = 5.0
_EDIT = "systemctl edit zmqtriton"


def ask_systemd(unit: str) -> str:
    """Return the properties of a unit's last run from `systemctl show`; "" without systemd."""
    if "@." in unit or not _BOOTED.is_dir():
        return ""
    command = ["systemctl", "show", "--property=ActiveState,Result,NRestarts", unit]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def judge_units(
    options: Mapping[str, Any],
    root: Path = ROOT,
    *,
    is_running: bool = False,
    ask: Callable[[str], str] = ask_systemd,
) -> Iterator[Finding]:
    for name in _NAMES:
        files = [root / folder / name for folder in _FOLDERS]
        path = next((file for file in files if os.path.isfile(file)), None)
        if path is None:
            continue
        settings = _read_settings(path, root)
        if not is_running and (failure := _failure_in(ask(name))):
            yield Finding.error(
                f"{path} does not stay up: its last run ended with {failure}",
                "The last lines of its log say why. Where one model cannot be loaded, "
                "--exit-on-error=false serves the others.",
                "journalctl -u zmqtriton -n 30",
            )
        yield from _judge_program(path, settings.get("ExecStart", ""), root)
        yield from _judge_settings(path, settings, options)


def _failure_in(properties: str) -> str:
    """Return the failure of a unit's last run; "" without one, or without properties."""
    values = dict(line.partition("=")[::2] for line in properties.splitlines())
    if values.get("Result", "") not in ("", "success"):
        return values["Result"]
    # A new attempt hides how the last one ended.
    is_retry = values.get("ActiveState") == "activating" and values.get("NRestarts", "0") != "0"
    return "a restart" if is_retry else ""


def _judge_program(path: Path, command: str, root: Path) -> Iterator[Finding]:
    program = command.lstrip("-@:+!").partition(" ")[0]
    if not program.startswith("/") or "%" in program or "$" in program:
        return
    try:
        os.stat(root / program[1:])
    except FileNotFoundError:
        yield Finding.error(
            f"{path} starts {program}, which does not exist",
            "Install the server there, or correct ExecStart=.",
            "python3 -m venv /opt/zmqtriton",
        )
    except OSError:
        return  # whoever may not look does not know


def _judge_settings(
    path: Path, settings: Mapping[str, str], options: Mapping[str, Any]
) -> Iterator[Finding]:
    stop_s = _parse_span(settings.get("TimeoutStopSec", settings.get("TimeoutSec", "")))
    needed_s = options.get("exit-timeout-secs", _EXIT_TIMEOUT_S) + options.get("exit-drain-secs", 0)
    if stop_s is not None and stop_s <= needed_s:
        yield Finding.warning(
            f"{path} kills the server {stop_s:g} s after a stop, and the server "
            f"may take {needed_s:g} s to finish its requests",
            f"Set TimeoutStopSec= to {needed_s + 15:g} or more "
            "(--exit-timeout-secs and --exit-drain-secs together, and some more).",
            _EDIT,
        )
    descriptors = _parse_limit(settings.get("LimitNOFILE", ""))
    if descriptors is not None and descriptors < _FEW_DESCRIPTORS:
        yield Finding.warning(
            f"{path} allows {descriptors:g} file descriptors, which is few",
            "Set LimitNOFILE=65536.",
            _EDIT,
        )
    kill_mode = settings.get("KillMode", "mixed")
    if kill_mode != "mixed":
        yield Finding.warning(
            f"{path} has KillMode={kill_mode}, so requests under way are lost at a stop",
            "Set KillMode=mixed: the supervisor ends the others in order.",
            _EDIT,
        )


def read_unit_options(root: Path = ROOT) -> str:
    """Read the options that the unit gives the server, or ""."""
    files = [root / "etc/zmqtriton/environment"]
    files += [root / folder / name for folder in _FOLDERS for name in _NAMES]
    for path in files:
        for line in read(path).splitlines():
            match = re.match(r"(?:Environment=)?\"?ZMQTRITON_OPTIONS=(.*)", line.strip())
            if match:
                return match[1].strip("\"'")
    return ""


def _read_settings(main: Path, root: Path) -> dict[str, str]:
    folders = (root / folder / f"{main.name}.d" for folder in _FOLDERS)
    edits = [edit for folder in folders for edit in folder.glob("*.conf")]
    settings: dict[str, str] = {}
    for path in (main, *sorted(edits, key=lambda edit: edit.name)):
        for line in read(path).splitlines():
            name, is_assignment, value = line.partition("=")
            if is_assignment and name.isidentifier() and value.strip():
                settings[name] = value.strip()
    return settings


def _parse_span(text: str) -> float | None:
    """Return a time span of systemd in seconds; None without one, or without a limit."""
    if text in ("", "0", "infinity"):
        return None
    return sum(float(number) * _UNITS_S.get(unit, 1) for number, unit in _SPAN.findall(text))


def _parse_limit(text: str) -> float | None:
    """Return the hard limit of a `soft:hard` setting; the server raises its limit to this one."""
    last = text.rpartition(":")[2]
    if last == "infinity":
        return math.inf
    return float(last) if last.isdigit() else None
