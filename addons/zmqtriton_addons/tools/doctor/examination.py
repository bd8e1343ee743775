"""All subjects, and the order of the findings."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from zmqtriton import runtime_places
from zmqtriton.findings import Finding, Severity, note
from zmqtriton_addons.tools.doctor import (
    certificates,
    environments,
    files,
    memory,
    processes,
    programs,
    servers,
    systemd,
)
from zmqtriton_addons.tools.doctor.reading import ROOT
from zmqtriton_addons.tools.doctor.target import Target
from zmqtriton_addons.tools.explaining.causes import judge_pressure

_ORDER = list(Severity)
_FORBIDDEN = os.strerror(errno.EACCES)


def list_subjects(target: Target, root: Path = ROOT) -> dict[str, Iterable[Finding]]:
    """Return the subjects by name; each is read when its findings are iterated."""
    options, server, places = target.options, target.server, target.repositories
    now_s = time.time()
    pid, version = (server.pid, server.version) if server else (0, "")
    names = server.processes if server else {}
    is_start = server is None
    users = options.get("stub-user", ())
    named = options.get("runtime-directory", "") if is_start else ""
    return {
        "the options": servers.judge_options(target.options_problem),
        "the file of options": servers.judge_option_file(
            options.get("config", ""), server.started_s if server else 0.0
        ),
        "the ports": servers.judge_ports(options if is_start else {}),
        "the models": servers.judge_models(server.troubles if server else ()),
        "the log": servers.judge_log(server.log if server else ""),
        "the processes": processes.judge_stopped(names, root),
        "the stub users": servers.judge_stub_users(users, places),
        "the units of systemd": systemd.judge_units(options, root, is_running=not is_start),
        "the proxies of the environment": servers.judge_proxies(),
        "the proxies of this machine": servers.judge_reverse_proxies(options, root),
        "the home directory": servers.judge_home(),
        "the model repositories": files.judge_repositories(places),
        "the runtime directories": servers.judge_runtime_directories(
            target.directories, named, target.silent
        ),
        "the certificates": certificates.judge_certificates(
            options, now_s, is_running=not is_start
        ),
        "the secret files": files.judge_secret_files(options),
        "the environment cache": environments.judge_cache(places, options),
        "the directory of the log": files.judge_log(options.get("log-file", "")),
        "the directory for temporary files": files.judge_temporary(str(runtime_places.preferred())),
        "the Pythons of the models": environments.judge_pythons(places, options),
        "the variables of the models": environments.judge_variables(options),
        "the packages": programs.judge_packages(),
        "the installation": programs.judge_installations(pid, version),
        "the interpreter": programs.judge_interpreter(),
        "the GPUs": programs.judge_gpus(pid, root),
        "the kernel and its limits": processes.judge_start(target.start),
        "the limits": processes.judge_limits(pid, names, root),
        "the clock": programs.judge_clock(now_s),
        "the pressure on the machine": memory.judge_machine(
            server.pressure if server else None, root
        ),
        "the loops of the server": judge_pressure(server.slow_loops if server else ()),
        "the memory of the machine": memory.judge_memory(pid, root),
        "the swap": processes.judge_swap(names, root),
        "the shared memory": memory.judge_shared_memory(options, root),
        "the cores": memory.judge_cores(pid, server.instances if server else 0, root),
    }


def examine(subjects: Mapping[str, Iterable[Finding]]) -> list[Finding]:
    """Return all findings, the most important first."""
    findings = [each for name in subjects for each in _guard(name, subjects[name])]
    # a server that runs says of these models the same in its own words
    in_error = {one.model for one in findings if one.severity is Severity.ERROR and one.model}
    findings = [
        one for one in findings if one.severity is Severity.ERROR or one.model not in in_error
    ]
    return sorted(findings, key=lambda finding: _ORDER.index(finding.severity))


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
