"""A server's options, models, ports, users and directories."""

from __future__ import annotations

import errno
import os
import shlex
import socket
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from zmqtriton.control_client import user_name
from zmqtriton.diagnosis.facts.readings import ROOT, read
from zmqtriton.diagnosis.rules.files import FileSystem
from zmqtriton.environments.users import StubUsers, UserError, find_user
from zmqtriton.findings import Finding
from zmqtriton.start.ports import describe_listener, waits_in_systemd
from zmqtriton_floor.hosts import is_loopback

_SERVICES = (
    ("allow-http", "http-address", "http-port"),
    ("allow-grpc", "grpc-address", "grpc-port"),
    ("allow-metrics", "metrics-address", "metrics-port"),
)
_FIRST_FREE_FOR_ALL = 1024
#: Maximum number of models in trouble with a finding of their own; the others are counted.
_MAX_MODELS = 10
#: The names of proxies' processes.
_PROXIES = frozenset({"apache2", "caddy", "envoy", "haproxy", "httpd", "nginx", "traefik"})
#: Files that a stub must be able to read, as patterns below the repository.
_READ_BY_STUBS = ("*/config.pbtxt", "*/*/model.py")
#: The longest path of a runtime directory: a unix socket's, less the longest name in there.
_LONGEST_PATH = 107 - len("/requests-4294967295")


def judge_options(problem: str) -> Iterator[Finding]:
    if problem:
        yield Finding.error(
            f"a server cannot start with these options: {problem}",
            "Correct them: on the command line, in the file of --config, in variables; in the unit "
            "they stand in ZMQTRITON_OPTIONS.",
            "zmqtriton --help",
        )


def judge_option_file(path: str, started_s: float) -> Iterator[Finding]:
    """Judge whether a server that runs has read the file of its options as it is now."""
    if os.path.isabs(path) and started_s and os.stat(path).st_mtime > started_s:
        yield Finding.note(
            f"{path}, the file of --config, has changed since the server started",
            "The server reads it once; a restart of the server takes the changes over.",
            "zmqtriton-ctl config",
        )


def judge_models(troubles: Sequence[tuple[str, str]]) -> Iterator[Finding]:
    """Report each model in trouble, with its most important finding."""
    advice = "This says what to do:"
    for model, text in troubles[:_MAX_MODELS]:
        command = f"zmqtriton-ctl explain {shlex.quote(model)}"
        finding = Finding.warning(f"{model}: {text}", advice, command)
        # what is wrong with one that serves is another matter than its files
        yield replace(finding, model=model) if text.startswith("not ready") else finding
    if len(troubles) > _MAX_MODELS:
        more = len(troubles) - _MAX_MODELS
        yield Finding.warning(f"{more} more models are in trouble", advice, "zmqtriton-ctl explain")


def judge_log(problem: str) -> Iterator[Finding]:
    if problem:
        yield Finding.warning(
            problem,
            "The reader of the server's stderr, such as a shipper of logs, has stopped or is too "
            "slow, or the disk of the log file is full. Models and requests do not wait for it.",
            "zmqtriton-ctl logs",
        )


def judge_ports(options: Mapping[str, Any]) -> Iterator[Finding]:
    """Try the ports that a server with these options would open."""
    for allowed, address, option in _SERVICES:
        number = options.get(option, 0)
        if options.get(allowed) and number and not options.get(f"reuse-{option}"):
            try:
                _bind(options.get(address, ""), number)
            except OSError as problem:
                if problem.errno != errno.EADDRINUSE or not waits_in_systemd(number):
                    yield _judge_port(option, number, problem)


def _bind(address: str, number: int) -> None:
    family, kind, protocol, _, place = socket.getaddrinfo(
        address or None, number, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        # as the server does: connections of an earlier one do not count
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(place)


def _judge_port(option: str, number: int, problem: OSError) -> Finding:
    if problem.errno == errno.EACCES and number < _FIRST_FREE_FOR_ALL:
        return Finding.error(
            f"--{option}={number}: only root may open ports below {_FIRST_FREE_FOR_ALL}",
            f"Take a higher port, as in --{option}={number + 8000}, or give the unit "
            "CAP_NET_BIND_SERVICE in AmbientCapabilities= and CapabilityBoundingSet=.",
            "sysctl net.ipv4.ip_unprivileged_port_start",
        )
    text = f"port {number}: {problem.strerror or problem}"
    if problem.errno == errno.EADDRINUSE:
        holder = describe_listener(number)
        text = f"port {number} is in use{holder and f' by {holder}'}"
    return Finding.error(
        f"{text}, so a server cannot start with --{option}={number}",
        f"End that process, or take another port, as in --{option}={number + 1000}.",
        f"ss -ltnp sport = :{number}",
    )


def judge_stub_users(names: Iterable[str], repositories: Iterable[str]) -> Iterator[Finding]:
    """Judge whether models can run as these users. Only root can try the rights to read files."""
    paths = [Path(path) for path in repositories if os.path.isdir(path)]
    files = [file for path in paths for pattern in _READ_BY_STUBS for file in path.glob(pattern)]
    for name in names:
        try:
            find_user(name)
            if not os.geteuid():
                StubUsers([name]).check([*paths, *files])
        except UserError as problem:
            text = str(problem)
            reason = text.partition("': ")[2] or text.partition(": ")[2]
            yield Finding.error(
                f"models cannot run as {name}: {reason}",
                "Give the user the right to read that and to enter the directories above it.",
                f"namei -l {reason.rpartition(' ')[2]}",
            )


def judge_proxies() -> Iterator[Finding]:
    """Judge the variables that send requests for this machine elsewhere."""
    places = urllib.request.getproxies_environment()
    is_bypassed = all(
        urllib.request.proxy_bypass(host, places) for host in ("localhost", "127.0.0.1")
    )
    proxies = [f"{kind}_proxy={places[kind]}" for kind in ("http", "all") if kind in places]
    if proxies and not is_bypassed:
        yield Finding.warning(
            f"{', '.join(proxies)} sends requests for localhost to a proxy",
            "curl, gRPC and other clients on this machine then do not reach the server.",
            "export no_proxy=localhost,127.0.0.1,::1",
        )


def judge_reverse_proxies(options: Mapping[str, Any], root: Path = ROOT) -> Iterator[Finding]:
    """Judge whether a proxy on this machine may pass on names that the server refuses."""
    is_guarded = options.get("allow-http") and is_loopback(options.get("http-address", ""))
    if not is_guarded or options.get("http-allowed-host"):
        return
    names = {read(path).strip() for path in (root / "proc").glob("[0-9]*/comm")}
    for name in sorted(names & _PROXIES):
        yield Finding.note(
            f"{name} runs here, and a server on loopback answers 421 to names but localhost",
            "If it passes on the Host of its clients, name each, or let it send the server's "
            "address as Host.",
            "zmqtriton --http-allowed-host=NAME ...",
        )


def judge_home() -> Iterator[Finding]:
    home = os.path.expanduser("~")
    problem = ""
    if not os.path.isdir(home):
        problem = f"there is no {home}"
    elif not os.access(home, os.W_OK | os.X_OK):
        problem = f"this user may not write to {home}"
    if problem:
        yield Finding.note(
            f"the home directory cannot be used: {problem}",
            "Libraries of models that keep something there fail or complain; environments are kept "
            "below it, too.",
            "export HOME=/tmp",
        )


def judge_variables(options: Mapping[str, Any]) -> Iterator[Finding]:
    """Say which variables models get; nothing where the options are not known."""
    names = options.get("model-env")
    if names is None:
        return
    if not names:
        yield Finding.note(
            "models get all variables of the environment but the server's own",
            "--model-env restricts them to those that it names and those that libraries need.",
            "zmqtriton --model-env=NAME ...",
        )
    elif "*" in names:
        yield Finding.note(
            "models get all variables of the environment, the server's own, too (--model-env=*)",
            "Credentials of the server may be among them. Without the option these are withheld.",
            "zmqtriton-ctl config",
        )
    else:
        yield Finding.note(
            "models get only the variables that libraries need and those that --model-env names: "
            f"{', '.join(names)}",
            "Name each other one that a model reads. Without --model-env they get all but the "
            "server's own.",
            shlex.join(["zmqtriton", *(f"--model-env={name}" for name in names), "..."]),
        )


# --------------------------------------------------------- runtime directories


def judge_runtime_directories(
    directories: Iterable[Path], named: str = "", silent: Path | None = None
) -> Iterator[Finding]:
    """Judge the runtime directories of servers, and `named`, which a server would use."""
    errors = {path: _connection_error(path) for path in directories}
    stale = [str(path) for path, number in errors.items() if number == errno.ECONNREFUSED]
    if stale:
        yield Finding.note(
            f"a server that was killed has left {', '.join(stale)}",
            "The next server of this user removes it.",
            *(f"rm -r {path}" for path in stale),
        )
    if silent is not None:
        yield Finding.error(
            f"the server in {silent} is alive and does not answer",
            "Its supervisor is stopped, or waits for a disk.",
            f"fuser {silent}/ctl",
        )
    for path, number in errors.items():
        if number == errno.EACCES:
            yield Finding.note(
                f"a server in {path} would be another user's, and this user may not ask it",
                "Ask as that user or as root.",
                f"sudo zmqtriton-ctl --runtime-directory {path} doctor",
            )
    problem = _problem_of(Path(named)) if named else ""
    if problem:
        yield Finding.error(
            f"the runtime directory {named} cannot be used: {problem}",
            "Name another one with --runtime-directory, or let the server make one.",
            f"ls -ld {named}",
        )


def is_forbidden(path: Path) -> bool:
    """Return True if this user may not ask a server that is there."""
    return _connection_error(path) == errno.EACCES


def _connection_error(path: Path) -> int:
    """Return the errno of a connection to the server in `path`; 0 if it takes connections.

    ECONNREFUSED means that the server is dead: its socket is there, but no process listens.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as end:
        try:
            end.connect(str(path / "ctl"))
        except OSError as problem:
            return problem.errno or 0
    return 0


def _problem_of(path: Path) -> str:
    if len(os.fsencode(path.absolute())) > _LONGEST_PATH:
        return f"its path is longer than {_LONGEST_PATH} bytes, which sockets do not allow"
    try:
        owner = path.stat().st_uid
    except FileNotFoundError:
        parent = str(path.absolute().parent)
        return "" if FileSystem.of(parent).is_writable else f"this user may not write to {parent}"
    except OSError as problem:
        return problem.strerror or str(problem)
    if not path.is_dir():
        return "it is no directory"
    if owner != os.geteuid() and os.geteuid():
        return f"it belongs to {user_name(owner)}"
    return "" if os.access(path, os.W_OK) else "this user may not write there"
