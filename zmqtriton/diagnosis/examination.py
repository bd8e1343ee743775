"""An examination: all its chapters, and the order of the findings.

What a test prepares is below a `root` that takes the place of /.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from zmqtriton import addons, runtime_places
from zmqtriton.diagnosis.facts.readings import ROOT, is_elsewhere
from zmqtriton.diagnosis.facts.silence import find_silent
from zmqtriton.diagnosis.facts.target import Chapter, RunningServer, Target
from zmqtriton.diagnosis.hooks import CHAPTERS
from zmqtriton.diagnosis.rules import certificates, files, machine, programs, servers, systemd
from zmqtriton.diagnosis.rules.causes import judge_pressure, judge_processes
from zmqtriton.findings import Finding, Severity

_FORBIDDEN = os.strerror(errno.EACCES)


def list_chapters(target: Target, root: Path = ROOT) -> dict[str, Iterable[Finding]]:
    """Return the chapters by name; each is read when its findings are iterated."""
    return {each.name: each.findings for each in _chapters(target, root)}


def examine_server(server: RunningServer, options: Mapping[str, Any]) -> list[Finding]:
    """Return the findings about a server itself, without notes and those about its models."""
    chapters = _chapters(Target(options, server=server), ROOT)
    findings = examine({each.name: each.findings for each in chapters if each.is_of_server})
    return [finding for finding in findings if finding.severity is not Severity.NOTE]


def _chapters(target: Target, root: Path) -> list[Chapter]:
    silent = find_silent(path for path in target.repositories if "://" not in path)
    places = [path for path in target.repositories if path not in silent]
    target = replace(target, repositories=places)
    chapters = [Chapter("the silent repositories", files.judge_silent(silent))]
    chapters += _of_core(target, root)
    for more in CHAPTERS.all_of(addons.offers()):
        chapters += more(target)
    pid = target.server.pid if target.server else 0
    texts = [value for value in target.options.values() if isinstance(value, str)]
    named = [path for path in texts if path[:1] == "/" and not path.startswith(tuple(silent))]
    if pid and any(is_elsewhere(path, pid, root) for path in [*named, *places]):
        chapters = [each for each in chapters if not each.reads_files]
        judged = files.judge_elsewhere(pid)
        chapters.append(Chapter("the file system of the server", judged, is_of_server=True))
    return chapters


def _of_core(target: Target, root: Path) -> list[Chapter]:
    options, places = target.options, target.repositories
    running, is_start = target.server or RunningServer("", 0, ""), target.server is None
    pid, names = running.pid, running.processes
    runtime = options.get("runtime-directory", "") if is_start else ""
    of_files = partial(Chapter, reads_files=True, is_of_server=True)
    return [
        Chapter("the options", servers.judge_options(target.options_problem)),
        Chapter(
            "the file of options",
            servers.judge_option_file(options.get("config", ""), running.started_s),
            reads_files=True,
        ),
        Chapter("the ports", servers.judge_ports(options if is_start else {})),
        Chapter("the models", servers.judge_models(running.troubles)),
        Chapter("the log", servers.judge_log(running.log), is_of_server=True),
        Chapter("the stub users", servers.judge_stub_users(options.get("stub-user", ()), places)),
        Chapter(
            "the units of systemd", systemd.judge_units(options, root, is_running=not is_start)
        ),
        Chapter("the proxies of the environment", servers.judge_proxies()),
        Chapter("the proxies of this machine", servers.judge_reverse_proxies(options, root)),
        Chapter("the home directory", servers.judge_home()),
        Chapter("the model repositories", files.judge_repositories(places), reads_files=True),
        Chapter(
            "the runtime directories",
            servers.judge_runtime_directories(target.directories, runtime, target.silent),
        ),
        of_files(
            "the certificates",
            certificates.judge_certificates(options, time.time(), is_running=not is_start),
        ),
        of_files("the secret files", files.judge_secret_files(options)),
        of_files("the directory of the log", files.judge_log(target.path("log-file"), pid, root)),
        Chapter(
            "the directory for temporary files",
            () if runtime else files.judge_temporary(runtime_places.preferred),
        ),
        Chapter("the variables of the models", servers.judge_variables(options)),
        Chapter("the processes", machine.judge_stopped(names, root), is_of_server=True),
        Chapter("the packages", programs.judge_packages()),
        Chapter("the installation", programs.judge_installations(pid, running.version)),
        Chapter("the interpreter", programs.judge_interpreter()),
        Chapter("the GPUs", programs.judge_gpus(pid, root)),
        Chapter("the kernel and its limits", machine.judge_start(target.start)),
        Chapter("the limits", machine.judge_limits(pid, names, root)),
        Chapter("the clock", programs.judge_clock(time.time())),
        Chapter("the pressure on the machine", machine.judge_machine(running.pressure, root)),
        Chapter("the processes of the server", judge_processes(running.process_troubles)),
        Chapter("the loops of the server", judge_pressure(running.slow_loops)),
        Chapter("the memory of the machine", machine.judge_memory(pid, root)),
        Chapter("the swap", machine.judge_swap(names, root)),
        Chapter("the shared memory", machine.judge_shared_memory(options, root)),
        Chapter("the cores", machine.judge_cores(pid, running.instances, root)),
    ]


def examine(chapters: Mapping[str, Iterable[Finding]]) -> list[Finding]:
    """Return all findings, the most important first."""
    findings = [each for name in chapters for each in _guard(name, chapters[name])]
    # a server that runs says of these models the same in its own words
    in_error = {one.model for one in findings if one.severity is Severity.ERROR and one.model}
    findings = [
        one for one in findings if one.severity is Severity.ERROR or one.model not in in_error
    ]
    # two services may have one certificate
    return sorted(dict.fromkeys(findings), key=lambda finding: finding.rank)


def _guard(subject: str, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings; if the subject cannot be read, a note about that."""
    try:
        yield from findings
    except Exception as error:  # noqa: BLE001 - whatever a machine has, the rest is judged
        reason = _reason(error)
        text, advice = f"could not be read: {subject}: {reason}", "Nothing is said of that here."
        if reason.startswith(_FORBIDDEN):
            yield Finding.note(text, f"{advice} Root may read it.", "sudo zmqtriton-ctl doctor")
        else:
            yield Finding.note(text, advice)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return f"{type(error).__name__}: {error}"
