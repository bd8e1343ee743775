"""An examination: its target, all subjects, and the order of the findings.

The target is a running server, or the start of one.
"""

from __future__ import annotations

import errno
import os
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from zmqtriton.sdk.models import Finding, Severity, note
from zmqtriton.sdk.process import (
    Client,
    NoServerError,
    command_line,
    control_client,
    runtime_places,
)
from zmqtriton.sdk.process import options as server_options
from zmqtriton.sdk.wire import ZmqTritonError
from zmqtriton_standard.ctl.asking import explain
from zmqtriton_standard.ctl.status import describe_log
from zmqtriton_standard.tools.checking.silence import find_silent
from zmqtriton_standard.tools.doctor import (
    certificates,
    environments,
    files,
    machine,
    programs,
    servers,
    systemd,
)
from zmqtriton_standard.tools.doctor.reading import ROOT, is_elsewhere
from zmqtriton_standard.tools.doctor.servers import is_forbidden
from zmqtriton_standard.tools.doctor.systemd import read_unit_options
from zmqtriton_standard.tools.explaining.causes import judge_pressure, judge_processes

_ORDER = list(Severity)
_FORBIDDEN = os.strerror(errno.EACCES)
_ANY_REPOSITORY = "--model-repository=."


@dataclass(frozen=True)
class Server:
    id: str
    pid: int
    version: str
    #: The models in trouble, the worst first, each with its most important finding.
    troubles: Sequence[tuple[str, str]] = ()
    #: The names of its processes, by pid.
    processes: Mapping[int, str] = field(default_factory=dict)
    instances: int = 0
    #: Trouble of the log in words: lost lines, or a reader that has stopped; "" without any.
    log: str = ""
    #: Time of the server's start by the wall clock; 0 if it is not known.
    started_s: float = 0.0
    #: Resources that its machine is short of; None if the server does not measure them.
    pressure: Sequence[Mapping[str, Any]] | None = None
    #: Processes whose event loops were slow, so that others have waited for them.
    slow_loops: Sequence[Mapping[str, Any]] = ()
    #: Processes that do not do their work, with the reason.
    process_troubles: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Target:
    #: The options of the server, by name; those with which it would be started if none runs.
    options: Mapping[str, Any] = field(default_factory=dict)
    #: Options of a server that would be started; None if one runs.
    start: server_options.Options | None = None
    #: Reason why the options are not known; "" if they are.
    options_problem: str = ""
    server: Server | None = None
    repositories: Sequence[str] = ()
    #: Runtime directories that a server may have.
    directories: Sequence[Path] = ()
    #: The directory of a server that is alive and does not answer.
    silent: Path | None = None

    def describe(self) -> str:
        if self.server is not None:
            path = self.options.get("config", "")
            return f"'{self.server.id}', pid {self.server.pid}{path and f', options of {path}'}"
        has_others = any(map(is_forbidden, self.directories))
        return f"no server runs{' that this user may ask' if has_others else ''}"


def find_target(
    selector: control_client.ServerSelector,
    repositories: Sequence[str],
    words: Sequence[str],
    root: Path = ROOT,
) -> Target:
    """Return the selected server; without one, the start of a server with these options.

    Raises NoServerError if a server is named that there is not.
    """
    directories = list(control_client.find_directories(selector.directory))
    silent: Path | None = None
    client = None if words else _connect(selector)
    if client is not None:
        with client:
            try:
                server, options, served = _ask(client)
                places = _joined(served or options.get("model-repository", ()), repositories)
                problem = _problem_of(options.get("config", ""))
                return Target(options, None, problem, server, places, directories)
            except NoServerError:
                silent = client.directory
    options, start, problem = _read_options(words, repositories, root)
    places = _joined(options.get("model-repository", ()), repositories)
    return Target(options, start, problem, None, places, directories, silent)


def _joined(first: Iterable[str], more: Iterable[str]) -> list[str]:
    return list(dict.fromkeys([*first, *more]))


def _connect(selector: control_client.ServerSelector) -> Client | None:
    try:
        return control_client.connect(selector)
    except NoServerError:
        if selector.name:
            raise
        return None


def _ask(client: Client) -> tuple[Server, Mapping[str, Any], Sequence[str]]:
    """Ask a server for itself, its options and its repositories."""
    identity = client.identity  # first, since who is stopped is not waited for long
    status = client.call("status", timeout_s=control_client.QUICK_TIMEOUT_S)
    troubles: dict[str, str] = {}
    for finding in explain(client):
        troubles.setdefault(finding.model, finding.text)
    rows, pressure = [], None
    with suppress(ZmqTritonError):  # one of an older version does not know the call
        rows = client.call("options", timeout_s=control_client.QUICK_TIMEOUT_S)
    with suppress(ZmqTritonError):  # nor does one without metrics
        pressure = client.call("latest", timeout_s=control_client.QUICK_TIMEOUT_S).get("machine")
    processes = status["processes"]
    server = Server(
        identity.id,
        identity.pid,
        identity.build,
        list(troubles.items()),
        {one["pid"]: one.get("instance") or one["role"] for one in processes if one.get("pid")},
        sum(one["role"] == "stub" for one in processes),
        describe_log(status.get("log", {})),
        min((one["started_s"] for one in processes if one.get("started_s")), default=0.0),
        pressure,
        status.get("slow_loops", ()),
        status.get("process_troubles", ()),
    )
    return server, {row["option"]: row["value"] for row in rows}, status.get("repositories", [])


def _read_options(
    words: Sequence[str], repositories: Sequence[str], root: Path
) -> tuple[Mapping[str, Any], server_options.Options | None, str]:
    """Return the options of a server that would be started here, or why it would not."""
    line = list(words)
    if not line:
        text = os.environ.get("ZMQTRITON_OPTIONS") or read_unit_options(root)
        try:
            line = shlex.split(text)
        except ValueError as error:
            return {}, None, f"{error} in {text}"
    line += [f"--model-repository={path}" for path in repositories]
    try:
        options = command_line.parse_words(line, usual=[_ANY_REPOSITORY])
    except server_options.OptionError as error:
        return {}, None, _one_line(error)
    values = {row["option"]: row["value"] for row in server_options.describe_options(options, {})}
    has_repository = dict(options.origins)["model_repository"] != server_options.COMMAND
    return values if has_repository else {**values, "model-repository": []}, options, ""


def _problem_of(path: str) -> str:
    """Return the first mistake in the file of options of a server, or ""."""
    if not os.path.isabs(path):
        return ""
    try:
        server_options.check_document(path, Path(path).read_text("utf-8"))
    except OSError:
        return ""  # another user may not read it
    except (server_options.OptionError, UnicodeDecodeError) as error:
        return _one_line(error)
    return ""


def _one_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return " ".join(lines if lines[0].startswith("Bad option") else lines[:1])


def list_subjects(target: Target, root: Path = ROOT) -> dict[str, Iterable[Finding]]:
    """Return the subjects by name; each is read when its findings are iterated."""
    silent = find_silent(path for path in target.repositories if "://" not in path)
    places = [path for path in target.repositories if path not in silent]
    target = replace(target, repositories=places)
    subjects, options = _subjects(target, root), target.options
    pid = target.server.pid if target.server else 0
    texts = [value for value in options.values() if isinstance(value, str)]
    named = [path for path in texts if path[:1] == "/" and not path.startswith(tuple(silent))]
    if pid and any(is_elsewhere(path, pid, root) for path in [*named, *places]):
        subjects = {name: each for name, each in subjects.items() if name not in _OF_FILES}
        subjects[_ELSEWHERE] = files.judge_elsewhere(pid)
    return {"the silent repositories": files.judge_silent(silent), **subjects}


def _subjects(target: Target, root: Path) -> dict[str, Iterable[Finding]]:
    options, server, places = target.options, target.server, target.repositories
    now_s = time.time()
    pid, version = (server.pid, server.version) if server else (0, "")
    names = server.processes if server else {}
    is_start = server is None
    runtime = options.get("runtime-directory", "") if is_start else ""
    # a relative one is below the working directory of a server that runs
    log, access_log = (
        path if is_start or os.path.isabs(path) else ""
        for path in (options.get("log-file") or "", options.get("access-log") or "")
    )
    return {
        "the options": servers.judge_options(target.options_problem),
        "the file of options": servers.judge_option_file(
            options.get("config", ""), server.started_s if server else 0.0
        ),
        "the ports": servers.judge_ports(options if is_start else {}),
        "the models": servers.judge_models(server.troubles if server else ()),
        "the log": servers.judge_log(server.log if server else ""),
        "the processes": machine.judge_stopped(names, root),
        "the stub users": servers.judge_stub_users(options.get("stub-user", ()), places),
        "the units of systemd": systemd.judge_units(options, root, is_running=not is_start),
        "the proxies of the environment": servers.judge_proxies(),
        "the proxies of this machine": servers.judge_reverse_proxies(options, root),
        "the home directory": servers.judge_home(),
        "the model repositories": files.judge_repositories(places),
        "the runtime directories": servers.judge_runtime_directories(
            target.directories, runtime, target.silent
        ),
        "the certificates": certificates.judge_certificates(
            options, now_s, is_running=not is_start
        ),
        "the secret files": files.judge_secret_files(options),
        "the environment cache": environments.judge_cache(places, options),
        "the directory of the log": files.judge_log(log, pid, root),
        "the directory of the access log": files.judge_access_log(access_log),
        "the directory of the jobs": files.judge_jobs(options, names, is_running=not is_start),
        "the directory for temporary files": (
            () if runtime else files.judge_temporary(runtime_places.preferred)
        ),
        "the Pythons of the models": environments.judge_pythons(places, options),
        "the variables of the models": environments.judge_variables(options),
        "the packages": programs.judge_packages(),
        "the installation": programs.judge_installations(pid, version),
        "the interpreter": programs.judge_interpreter(),
        "the GPUs": programs.judge_gpus(pid, root),
        "the kernel and its limits": machine.judge_start(target.start),
        "the limits": machine.judge_limits(pid, names, root),
        "the clock": programs.judge_clock(now_s),
        "the pressure on the machine": machine.judge_machine(
            server.pressure if server else None, root
        ),
        "the processes of the server": judge_processes(server.process_troubles if server else ()),
        "the loops of the server": judge_pressure(server.slow_loops if server else ()),
        "the memory of the machine": machine.judge_memory(pid, root),
        "the swap": machine.judge_swap(names, root),
        "the shared memory": machine.judge_shared_memory(options, root),
        "the cores": machine.judge_cores(pid, server.instances if server else 0, root),
    }


_ELSEWHERE = "the file system of the server"
#: The subjects that read files of a server by its own paths, which may lead elsewhere from here.
_OF_FILES = frozenset(
    {
        "the file of options",
        "the model repositories",
        "the certificates",
        "the secret files",
        "the environment cache",
        "the directory of the log",
        "the directory of the access log",
        "the directory of the jobs",
        "the Pythons of the models",
    }
)
#: The subjects that are of a server's own, and cost no time: `explain` ends with them.
_OF_SERVER = (
    _ELSEWHERE,
    "the log",
    "the processes",
    "the certificates",
    "the secret files",
    "the directory of the log",
    "the directory of the access log",
    "the directory of the jobs",
)


def examine_server(client: Client) -> list[Finding]:
    """Return the findings about a server itself, without those about its models."""
    status = client.call("status", timeout_s=control_client.QUICK_TIMEOUT_S)
    rows = client.call("options", timeout_s=control_client.QUICK_TIMEOUT_S)
    processes = status["processes"]
    server = Server(
        client.identity.id,
        client.identity.pid,
        client.identity.build,
        processes={one["pid"]: one.get("instance") or one["role"] for one in processes},
        log=describe_log(status.get("log", {})),
    )
    subjects = list_subjects(Target({row["option"]: row["value"] for row in rows}, server=server))
    findings = examine({name: subjects[name] for name in _OF_SERVER if name in subjects})
    return [finding for finding in findings if finding.severity is not Severity.NOTE]


def examine(subjects: Mapping[str, Iterable[Finding]]) -> list[Finding]:
    """Return all findings, the most important first."""
    findings = [each for name in subjects for each in _guard(name, subjects[name])]
    # a server that runs says of these models the same in its own words
    in_error = {one.model for one in findings if one.severity is Severity.ERROR and one.model}
    findings = [
        one for one in findings if one.severity is Severity.ERROR or one.model not in in_error
    ]
    # two services may have one certificate
    return sorted(dict.fromkeys(findings), key=lambda finding: _ORDER.index(finding.severity))


def _guard(subject: str, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings; where the subject cannot be read, a note of that."""
    try:
        yield from findings
    except Exception as error:  # noqa: BLE001 - whatever a machine has, the rest is judged
        reason = _reason(error)
        text, advice = f"could not be read: {subject}: {reason}", "Nothing is said of that here."
        if reason.startswith(_FORBIDDEN):
            yield note(text, f"{advice} Root may read it.", "sudo zmqtriton-ctl doctor")
        else:
            yield note(text, advice)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return f"{type(error).__name__}: {error}"
