"""Explains the models of a server that are not ready, fail or are slow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from zmqtriton.control_client import Client
from zmqtriton.diagnosis.examination import examine_server
from zmqtriton.diagnosis.facts.server import ServerAnswers
from zmqtriton.diagnosis.rules.causes import judge_places, judge_pressure, judge_processes
from zmqtriton.diagnosis.rules.requests import judge_tokens
from zmqtriton.diagnosis.rules.served import find_all, no_models
from zmqtriton.findings import Finding, Severity
from zmqtriton_floor.errors import NotFound

#: Findings by model, the most important first; some are of `the server` and `the machine`.
Explained = list[tuple[str, list[Finding]]]


def explain_version(client: Client, model: str, version: int) -> Finding:
    """Return the most important finding about a model; 0 is all versions."""
    return find_all(ServerAnswers(client).facts_about(model, version))[0]


def explain(
    client: Client,
    model: str,
    version: int,
    show: Callable[[str], None],
    tell: Callable[[str], None],
) -> Explained:
    """Explain a model, or without one all that is in trouble. Raises NotFound.

    `show` is called with each step, and `tell` with what was left out.
    """
    answers = ServerAnswers(client, show, tell)
    explained = _explain_model(answers, model, version) if model else _explain_all(answers)
    if answers.is_slow:
        tell(f"the server is slow: not all was looked at within {ServerAnswers.WITHIN_S:.0f} s")
    return explained


def explain_troubled(answers: ServerAnswers) -> Explained:
    """Return the findings about each model that is in trouble, the worst first."""
    if not answers.index:
        return [("the server", [no_models(answers.status)])]
    troubled: Explained = []
    for name in answers.in_use():
        findings = find_all(answers.facts_about(name, is_overview=True))
        if answers.is_unready(name) or {Severity.NOTE} != {each.severity for each in findings}:
            troubled.append((name, findings))
    return sorted(
        troubled,
        key=lambda one: (not answers.is_unready(one[0]), min(each.rank for each in one[1])),
    )


def _explain_all(answers: ServerAnswers) -> Explained:
    """Return the findings about models, and about the machine if it is short of something."""
    explained = explain_troubled(answers)
    of_server = [
        *judge_processes(answers.status.get("process_troubles", ())),
        *judge_places(answers.status.get("silent_places", ())),
        *answers.take(
            "looks at the server",
            lambda: examine_server(answers.running, answers.options),
            list[Finding](),
        ),
        *judge_tokens(answers.read_clients()),
    ]
    more = [
        ("the server", of_server),
        ("the machine", [*judge_pressure(answers.read_pressure())]),
    ]
    return explained + [each for each in more if each[1]]


def _explain_model(answers: ServerAnswers, model: str, version: int) -> Explained:
    facts = answers.facts_about(model, version)
    facts = replace(facts, pressure=answers.read_pressure() if facts.entries else ())
    findings = find_all(facts)
    if not facts.entries:
        finding = findings[0]
        hint = "; ".join(f"`{command}`" for command in finding.commands)
        raise NotFound(f"{model}: {finding.text}\n  {finding.advice}\n  next: {hint}")
    return [(model, findings)]
