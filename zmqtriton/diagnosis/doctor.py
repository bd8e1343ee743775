"""The doctor: its target is a running server, or the start of one."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from zmqtriton.command_line import parse_words
from zmqtriton.control_client import Client, NoServerError, ServerSelector, find_directories
from zmqtriton.diagnosis.examination import examine, list_chapters
from zmqtriton.diagnosis.explain import explain_troubled
from zmqtriton.diagnosis.facts.readings import ROOT
from zmqtriton.diagnosis.facts.server import ServerAnswers
from zmqtriton.diagnosis.facts.target import Target
from zmqtriton.diagnosis.rules import servers
from zmqtriton.diagnosis.rules.systemd import read_unit_options
from zmqtriton.findings import Finding
from zmqtriton.options import COMMAND, OptionError, Options, check_document, describe_options


def diagnose(
    selector: ServerSelector, repositories: Sequence[str], words: Sequence[str]
) -> tuple[str, list[Finding]]:
    """Return the target in words, and the findings, the most important first.

    Raises NoServerError if a server is named that there is not.
    """
    target = find_target(selector, repositories, words)
    subjects = list_chapters(target)
    whom = "a server with these options" if words else _describe(target)
    return f"{whom}; {len(subjects)} things were looked at", examine(subjects)


def find_target(
    selector: ServerSelector,
    repositories: Sequence[str],
    words: Sequence[str],
    root: Path = ROOT,
) -> Target:
    """Return the selected server; without one, the start of a server with these options.

    Raises NoServerError if a named server does not run.
    """
    directories = list(find_directories(selector.directory))
    silent: Path | None = None
    client = None if words else _connect(selector)
    if client is not None:
        with client:
            try:
                return _running(client, repositories, directories)
            except NoServerError:
                silent = client.directory
    options, start, problem = _read_options(words, repositories, root)
    places = _joined(options.get("model-repository", ()), repositories)
    return Target(options, start, problem, None, places, directories, silent)


def _joined(first: Iterable[str], more: Iterable[str]) -> list[str]:
    return list(dict.fromkeys([*first, *more]))


def _connect(selector: ServerSelector) -> Client | None:
    try:
        return selector.connect()
    except NoServerError:
        if selector.name:
            raise
        return None


def _running(client: Client, more: Sequence[str], directories: Sequence[Path]) -> Target:
    """Ask a server for the facts that the doctor judges. Raises NoServerError."""
    _ = client.identity  # first, since a server that is stopped is not waited for long
    answers = ServerAnswers(client)
    troubles = [(name, findings[0].text) for name, findings in explain_troubled(answers)]
    options = answers.options
    places = answers.status.get("repositories") or options.get("model-repository", ())
    return Target(
        options,
        None,
        _problem_of(options.get("config", "")),
        replace(answers.running, troubles=troubles),
        _joined(places, more),
        directories,
    )


def _describe(target: Target) -> str:
    """Return the target in words."""
    if target.server is not None:
        path = target.options.get("config", "")
        return f"'{target.server.id}', pid {target.server.pid}{path and f', options of {path}'}"
    has_others = any(map(servers.is_forbidden, target.directories))
    return f"no server runs{' that this user may ask' if has_others else ''}"


def _read_options(
    words: Sequence[str], repositories: Sequence[str], root: Path
) -> tuple[Mapping[str, Any], Options | None, str]:
    """Return the options of a server that would be started here, or why it could not start."""
    line = list(words)
    if not line:
        text = os.environ.get("ZMQTRITON_OPTIONS") or read_unit_options(root)
        try:
            line = shlex.split(text)
        except ValueError as error:
            return {}, None, f"{error} in {text}"
    line += [f"--model-repository={path}" for path in repositories]
    try:
        options = parse_words(line, usual=["--model-repository=."])
    except OptionError as error:
        return {}, None, _one_line(error)
    values = {row["option"]: row["value"] for row in describe_options(options, {})}
    has_repository = dict(options.origins)["model_repository"] != COMMAND
    return values if has_repository else {**values, "model-repository": []}, options, ""


def _problem_of(path: str) -> str:
    """Return the first mistake in the file of options of a server, or ""."""
    if not os.path.isabs(path):
        return ""
    try:
        check_document(path, Path(path).read_text("utf-8"))
    except OSError:
        return ""  # another user may not read it
    except (OptionError, UnicodeDecodeError) as error:
        return _one_line(error)
    return ""


def _one_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return " ".join(lines if lines[0].startswith("Bad option") else lines[:1])
