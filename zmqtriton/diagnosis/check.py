"""`zmqtriton check DIRECTORY ...`: finds errors in models before a server has to load them.

Takes the server's options, so that a whole command line can be put after the word `check`; prints
lines as compilers do, or JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from zmqtriton.command_line import parse_words
from zmqtriton.config.backends import backend_places, models_in
from zmqtriton.config.errors import Problem
from zmqtriton.config.model_config import ModelHost
from zmqtriton.diagnosis.facts.silence import WITHIN_S, find_silent
from zmqtriton.diagnosis.rules.models import CheckOptions
from zmqtriton.diagnosis.rules.repositories import Report, check_files, check_repositories
from zmqtriton.findings import Finding, Severity
from zmqtriton.host.gpus import Gpu
from zmqtriton.options import HelpRequested, OptionError, Options
from zmqtriton.reading.python_settings import check_settings
from zmqtriton.start.checks import find_problems
from zmqtriton.store_places import is_remote
from zmqtriton_floor.errors import ZmqTritonError

EXIT_CLEAN, EXIT_PROBLEMS, EXIT_USAGE = 0, 1, 2
_JSON = "--json"
#: Before it are directories and files, after it the options of a future server.
_OPTIONS = "--"
_SILENT = f"it does not answer within {WITHIN_S:g} s; its file system may hang"
_FIELDS = ("severity", "model", "path", "line", "column", "text", "detail", "suggestion")
_HELP = """\
Usage: zmqtriton check directory|file.py ... [--json] [options of the server]
       zmqtriton check -- [options of the server]

Reports every error in model repositories or single models without executing any of their code,
except for files of functions: a process of its own imports them, because their hints are Python.
It also calls each function of file.py once, with the request that `zmqtriton run` prints.
The directory is a repository or a model, the file a model by itself. All options of the server are
accepted, so a complete command line can follow the word `check`; a file of --config and variables
count, too. These have an effect:

  --model-repository, --model-config-name, --disable-auto-complete-config, --backend-directory,
  --backend-config, --repoagent-directory, --min-supported-compute-capability, --load-model,
  --build-environments

Behind `--` all options count: it also reports each reason against the start of a server here, such
as a missing file, a port that another program has, or more workers than the machine bears.

The exit status is 0 without errors, 1 with errors, and 2 for wrong usage. Warnings do not count:
they are likely mistakes, and things that only this machine lacks.
"""


def run_check(words: list[str]) -> int:
    """Run the command and return the exit status."""
    if any(word in ("-h", "--help") for word in words):
        sys.stdout.write(_HELP)
        return EXIT_CLEAN
    try:
        typed = [
            f"--model-file={word}" if word.endswith(".py") and not word.startswith("-") else word
            for word in words
            if word not in (_JSON, _OPTIONS)
        ]
        options = parse_words(typed, takes_directories=True)
    except (HelpRequested, OptionError) as refusal:
        sys.stderr.write(f"{refusal}\n{'' if words else _HELP}")
        return EXIT_USAGE
    remote = [place for place in options.model_repository if is_remote(place)]
    if remote and _OPTIONS not in words:
        sys.stderr.write(f"{remote[0]} is in a store, and only directories are checked\n")
        return EXIT_USAGE
    places = tuple(place for place in options.model_repository if place not in remote)
    report = check_all(replace(options, model_repository=places))
    files = [Path(file.path) for file in options.model_file]
    report.problems += check_files(files)
    if _OPTIONS in words:
        report.problems += [Problem(text) for text in find_problems(options)]
    findings = list(_all_findings(report))
    if _JSON in words:
        documents = [each.document(*_FIELDS) for each in findings]
        document = {"models": list(report.models), "findings": documents}
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    else:
        names = [models_in(each)[1] for each in files]
        sys.stdout.write(
            "".join(map(_format_line, findings))
            + _summary_line(sum(map(len, names)), len(report.models) + names.count(()), findings)
        )
    return EXIT_PROBLEMS if Severity.ERROR in (each.severity for each in findings) else EXIT_CLEAN


def check_all(options: Options) -> Report:
    """Return the problems that a server with these options would find, and further ones."""
    lowest = options.min_supported_compute_capability
    rules = CheckOptions(
        config_name=options.model_config_name,
        auto_complete=not options.strict_model_config,
        host=ModelHost(Gpu.visible(lowest), lowest),
        backend_places=backend_places(options.backend_directory),
        agent_directory=options.repoagent_directory,
        may_build=options.build_environments,
    )
    silent = find_silent(options.model_repository)
    directories = [Path(path) for path in options.model_repository if path not in silent]
    report = check_repositories(directories, rules, options.load_model)
    report.problems += [Problem(f"{path}: {_SILENT}") for path in silent]
    try:
        check_settings(options.backend_settings("python"))
    except ZmqTritonError as error:
        report.problems.append(Problem(error.text))
    return report


def _all_findings(report: Report) -> Iterator[Finding]:
    """Return the findings, errors first, and those about models with their places."""
    yield from (*report.errors, *report.warnings)
    for name, one in report.models.items():
        for each in (*one.errors, *one.warnings, *one.notes):
            yield replace(each, model=name, path=each.path or str(one.directory))


def _shorten(path: str) -> str:
    """Return the path relative to the working directory, if that is shorter."""
    short = os.path.relpath(path) if path else ""
    return path if short.startswith("..") else short


def _format_line(finding: Finding) -> str:
    place = replace(finding, path=_shorten(finding.path)).place
    lines = finding.lines(place, finding.severity.value)
    return " ".join(word for line in lines for word in line.splitlines()) + "\n"


def _summary_line(functions: int, models: int, findings: list[Finding]) -> str:
    wrong, warnings, notes = (sum(f.severity is one for f in findings) for one in Severity)
    counts = {
        "function": functions,
        "model": models,
        "problem": wrong,
        "warning": warnings,
        "note": notes,
    }
    always = ("problem", "warning", *["model"][functions > 0 :])
    lines = (
        f"{n} {word}{'' if n == 1 else 's'}" for word, n in counts.items() if n or word in always
    )
    return ", ".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(run_check(sys.argv[1:]))
