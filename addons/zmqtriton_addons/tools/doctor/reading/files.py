"""Reads directories, certificates, files with secrets, and systemd's units."""

from __future__ import annotations

import errno
import math
import os
import pwd
import re
import socket
import ssl
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from zmqtriton_addons.tools.doctor.facts import (
    Certificate,
    Place,
    RuntimeDirectory,
    SecretFile,
    Unit,
)
from zmqtriton_floor.access import token_file
from zmqtriton_floor.access.token_file import TokenFileError

#: The longest path of a runtime directory: a unix socket's, less the longest name in there.
_LONGEST_PATH = 107 - len("/requests-4294967295")
_UNIT_FOLDERS = ("etc/systemd/system", "usr/lib/systemd/system", "lib/systemd/system")
_UNIT_NAMES = ("zmqtriton.service", "zmqtriton@.service")
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_UNITS_S = {"": 1, "s": 1, "sec": 1, "ms": 0.001, "m": 60, "min": 60, "h": 3600, "hr": 3600}


def read_place(path: str) -> Place:
    """Read the file system of a directory that there is or will be."""
    folder = Path(path).absolute()
    # not Path.is_dir(), which raises where looking is forbidden
    while not os.path.isdir(folder) and folder != folder.parent:
        folder = folder.parent
    found = os.statvfs(folder)
    return Place(
        path,
        found.f_blocks * found.f_frsize,
        found.f_bavail * found.f_frsize,
        os.access(folder, os.W_OK | os.X_OK),
        not found.f_flag & os.ST_NOEXEC,
    )


def read_repository_problems(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Return the repositories that cannot be used, each with the reason."""
    for path in paths:
        if "://" in path:
            continue
        try:
            os.listdir(path)
        except OSError as error:
            yield path, error.strerror or str(error)


def read_certificates(options: Mapping[str, Any]) -> Iterator[Certificate]:
    for service in ("http", "grpc"):
        path = options.get(f"{service}-server-cert", "")
        if options.get(f"{service}-use-ssl") and path:
            yield read_certificate(
                f"--{service}-server-cert", path, options[f"{service}-server-key"]
            )


def read_certificate(option: str, path: str, key_path: str) -> Certificate:
    begins_s, ends_s = 0.0, math.inf
    is_public = False
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path, key_path, password="")
        # the one function of the standard library that reads the dates of a file
        decoded = ssl._ssl._test_decode_cert(path)  # type: ignore[attr-defined]
        begins_s = ssl.cert_time_to_seconds(decoded["notBefore"])
        ends_s = ssl.cert_time_to_seconds(decoded["notAfter"])
        is_public = _is_public(key_path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        return Certificate(option, path, key_path, str(reason))
    return Certificate(option, path, key_path, "", begins_s, ends_s, is_public)


def read_secret_files(options: Mapping[str, Any]) -> Iterator[SecretFile]:
    path = options.get("tokens", "")
    if not path:
        return
    try:
        token_file.read(path)
        yield SecretFile("tokens", path, is_public=_is_public(path))
    except (TokenFileError, OSError) as error:
        yield SecretFile("tokens", path, str(error))


def _is_public(path: str) -> bool:
    return bool(os.stat(path).st_mode & stat.S_IROTH)


def read_runtime_directories(found: Iterable[Path], named: str) -> Iterator[RuntimeDirectory]:
    """Read those that were found, and the one that the server is to use, if it is named."""
    for path in found:
        error = _connection_error(path)
        if error in (errno.ECONNREFUSED, errno.EACCES):
            is_dead = error == errno.ECONNREFUSED
            yield RuntimeDirectory(str(path), is_stale=is_dead, is_forbidden=not is_dead)
    problem = _problem_of(Path(named)) if named else ""
    if problem:
        yield RuntimeDirectory(named, problem=problem)


def _connection_error(path: Path) -> int:
    """Return why its server cannot be asked, as errno has it; 0 if it can.

    It is dead if nobody listens where it has listened.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as end:
        try:
            end.connect(str(path / "ctl"))
        except OSError as error:
            return error.errno or 0
    return 0


def _problem_of(path: Path) -> str:
    if len(os.fsencode(path.absolute())) > _LONGEST_PATH:
        return f"its path is longer than {_LONGEST_PATH} bytes, which sockets do not allow"
    try:
        owner = path.stat().st_uid
    except FileNotFoundError:
        parent = read_place(str(path.absolute().parent))
        return "" if parent.is_writable else f"this user may not write to {parent.path}"
    except OSError as error:
        return error.strerror or str(error)
    if not path.is_dir():
        return "it is no directory"
    if owner != os.geteuid() and os.geteuid():
        return f"it belongs to {_user_name(owner)}"
    return "" if os.access(path, os.W_OK) else "this user may not write there"


def _user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


# -------------------------------------------------------------------- systemd


def read_units(
    root: Path = Path("/"), read_failure: Callable[[str], str] = lambda _: ""
) -> Iterator[Unit]:
    """Read the units of the server, with what was edited."""
    for name in _UNIT_NAMES:
        files = [root / folder / name for folder in _UNIT_FOLDERS]
        main = next((path for path in files if os.path.isfile(path)), None)
        if main is None:
            continue
        edits = [
            edit
            for folder in _UNIT_FOLDERS
            for edit in (root / folder / f"{name}.d").glob("*.conf")
        ]
        settings: dict[str, str] = {}
        for path in (main, *sorted(edits, key=lambda edit: edit.name)):
            settings.update(_assignments(path))
        yield Unit(
            str(main),
            _parse_span(settings.get("TimeoutStopSec", settings.get("TimeoutSec", ""))),
            _parse_limit(settings.get("LimitNOFILE", "")),
            settings.get("KillMode", ""),
            read_failure(name),
            _missing_program(settings.get("ExecStart", ""), root),
        )


def read_unit_options(root: Path = Path("/")) -> str:
    """Read the options that the unit gives the server; "" if there are none."""
    files = [root / "etc/zmqtriton/environment"]
    files += [root / folder / name for folder in _UNIT_FOLDERS for name in _UNIT_NAMES]
    for path in files:
        for line in _read(path).splitlines():
            found = re.match(r"(?:Environment=)?\"?ZMQTRITON_OPTIONS=(.*)", line.strip())
            if found:
                return found[1].strip("\"'")
    return ""


def _assignments(path: Path) -> Iterator[tuple[str, str]]:
    for line in _read(path).splitlines():
        name, is_assignment, value = line.partition("=")
        if is_assignment and name.isidentifier() and value.strip():
            yield name, value.strip()


def _parse_span(text: str) -> float | None:
    """Return a time span of systemd in seconds; None if there is none, or no limit."""
    if text in ("", "0", "infinity"):
        return None
    return sum(float(number) * _UNITS_S.get(unit, 1) for number, unit in _SPAN.findall(text))


def _parse_limit(text: str) -> float | None:
    """Return the hard limit, to which the server raises its own."""
    last = text.rpartition(":")[2]
    if last == "infinity":
        return math.inf
    return float(last) if last.isdigit() else None


def _missing_program(command: str, root: Path) -> str:
    program = command.lstrip("-@:+!").partition(" ")[0]
    if not program.startswith("/") or "%" in program or "$" in program:
        return ""
    try:
        os.stat(root / program[1:])
    except FileNotFoundError:
        return program
    except OSError:
        return ""  # whoever may not look does not know
    return ""


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
