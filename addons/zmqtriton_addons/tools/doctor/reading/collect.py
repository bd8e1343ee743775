"""Collects all facts."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from zmqtriton import runtime_places
from zmqtriton.control_client.client import (
    Client,
    NoServerError,
    ServerSelector,
    connect,
    find_directories,
)
from zmqtriton.environments.cache import default_root
from zmqtriton.options import OptionError, describe_options, parse
from zmqtriton_addons.tools.doctor.facts import Facts, Place, RunningServer, RuntimeDirectory
from zmqtriton_addons.tools.doctor.reading import (
    files,
    guarded,
    memory,
    processes,
    programs,
    services,
    systemd,
)

_ROOT = Path("/")


def collect(
    selector: ServerSelector,
    repositories: Sequence[str],
    words: Sequence[str],
    root: Path = _ROOT,
) -> Facts:
    """Collect the facts, with a server if there is one.

    `words` are options with which one would be started. Raises NoServerError if one is named that
    there is not.
    """
    silent: list[RuntimeDirectory] = []
    server: RunningServer | None = None
    status: Mapping[str, Any] = {}
    options: Mapping[str, Any] = {}
    problem = ""
    client = None if words else _connect(selector)
    if client is not None:
        with client:
            try:
                server, status, options = services.read_server(client)
            except NoServerError:
                silent = [RuntimeDirectory(str(client.directory), is_silent=True)]
    if server is None:
        options, problem = _read_options(words, repositories, root)
    places = list(status.get("repositories", ())) or list(options.get("model-repository", ()))
    places = [*places, *(path for path in repositories if path not in places)]
    stubs = [one for one in status.get("processes", ()) if one["role"] == "stub"]
    facts = guarded.add(
        Facts(now_s=time.time(), options=options, options_problem=problem, server=server),
        installed_s=programs.read_installed_s,
        runtime_directories=lambda: [*silent, *_runtime_directories(selector, server, options)],
    )
    facts = _with_machine(facts, len(stubs), root)
    return _with_programs(_with_files(facts, places, root), places)


def _runtime_directories(
    selector: ServerSelector, server: RunningServer | None, options: Mapping[str, Any]
) -> Iterator[RuntimeDirectory]:
    named = options.get("runtime-directory", "") if server is None else ""
    return files.read_runtime_directories(find_directories(selector.directory), named)


def _with_machine(facts: Facts, instances: int, root: Path) -> Facts:
    pid = facts.server.pid if facts.server else 0
    return guarded.add(
        facts,
        limits=lambda: processes.read_limits(pid),
        memory=lambda: memory.read_memory(pid, root),
        cores=lambda: memory.read_cores(instances, pid, root),
        shared_memory=lambda: memory.read_shared_memory(root),
        gpu=lambda: programs.read_gpu(root),
        kernel=programs.read_kernel,
        ports=lambda: [] if facts.server else list(services.read_ports(facts.options)),
    )


def _with_files(facts: Facts, places: Sequence[str], root: Path) -> Facts:
    return guarded.add(
        facts,
        environment_cache=lambda: files.read_place(_cache_directory(facts.options)),
        log_directory=lambda: _log_directory(facts.options),
        temporary=lambda: files.read_place(str(runtime_places.preferred())),
        repository_problems=lambda: dict(files.read_repository_problems(places)),
        certificates=lambda: list(files.read_certificates(facts.options)),
        secret_files=lambda: list(files.read_secret_files(facts.options)),
        units=lambda: list(files.read_units(root, systemd.read_failure)),
        home_problem=services.read_home_problem,
    )


def _with_programs(facts: Facts, places: Sequence[str]) -> Facts:
    may_build = bool(facts.options.get("build-environments"))
    users = facts.options.get("stub-user", ())
    return guarded.add(
        facts,
        interpreter=programs.read_interpreter,
        model_pythons=lambda: list(programs.read_model_pythons(places, may_build=may_build)),
        has_uv=programs.has_uv,
        packages=lambda: list(programs.read_packages()),
        installation=programs.read_installation,
        stub_users=lambda: list(services.read_stub_users(users, places)),
        proxies=lambda: list(services.read_proxies()),
    )


def _connect(selector: ServerSelector) -> Client | None:
    try:
        return connect(selector)
    except NoServerError:
        if selector.name:
            raise
        return None


def _read_options(
    words: Sequence[str], repositories: Sequence[str], root: Path
) -> tuple[Mapping[str, Any], str]:
    """Return the options of a server that would be started here, or why it would not."""
    given = list(words)
    if not given:
        text = os.environ.get("ZMQTRITON_OPTIONS") or files.read_unit_options(root)
        try:
            given = shlex.split(text)
        except ValueError as error:
            return {}, f"{error} in {text}"
    given += [f"--model-repository={path}" for path in repositories]
    has_repository = any(word.startswith(("--model-repository", "--model-store")) for word in given)
    try:
        options = parse(given if has_repository else [*given, "--model-repository=."])
    except OptionError as error:
        return {}, str(error).splitlines()[0]
    found = {row["option"]: row["value"] for row in describe_options(options, {})}
    return found if has_repository else {**found, "model-repository": []}, ""


def _cache_directory(options: Mapping[str, Any]) -> str:
    return options.get("environment-directory") or default_root(
        is_shared=bool(options.get("stub-user"))
    )


def _log_directory(options: Mapping[str, Any]) -> Place | None:
    if not options.get("log-file"):
        return None
    folder = os.path.dirname(os.path.abspath(options["log-file"]))
    place = files.read_place(folder)
    # the server makes no directory for it
    return place if os.path.isdir(folder) else replace(place, is_writable=False)
