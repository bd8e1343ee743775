"""Explanations of a canary. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from zmqtriton.sdk.models import AnswerReader, Facts, Finding, figures


def read(reader: AnswerReader, facts: Facts) -> None:
    """Ask nothing: the status has all."""


def findings(facts: Facts, nothing: None) -> Iterator[Finding]:
    """Return nothing: a canary is no trouble of the model."""
    return iter(())


def notes(facts: Facts, nothing: None) -> Iterator[Finding]:
    """Tell how a version is tried beside the one that serves."""
    for canary in facts.status.get("canaries", {}).get("models", ()):
        if canary["model"] != facts.model or canary["phase"] == "PROMOTED":
            continue
        phase, reason = canary["phase"], canary.get("reason", "")
        why = f": {reason}" if reason else ""
        if phase == "ABORTED":
            text = f"the trial of version {canary['canary']} was aborted{why}; "
            text += f"version {canary['stable']} gets all requests"
            yield Finding.note(text, "", f"zmqtriton-ctl canary status {facts.word}")
            continue
        share = f"version {canary['canary']} is tried beside version {canary['stable']}"
        text = f"{share} (canary, {phase.lower()}{why}; {canary['weight']:g} % of the requests"
        text += f", {canary['shadow']:g} % copied)" if canary.get("shadow") else ")"
        status = f"zmqtriton-ctl canary status {facts.word}"
        yield Finding.note(text, "", status)
        yield from _uncopied_findings(facts, canary, status)


def _uncopied_findings(facts: Facts, canary: Mapping[str, Any], status: str) -> Iterator[Finding]:
    """Tell of a canary that gets no copies, and so is no trial."""
    compared = canary.get("comparisons", {})
    skipped = compared.get("skipped", 0)
    is_tried = canary["phase"] != "RUNNING" or any(
        compared.get(result) for result in ("equal", "different", "failed")
    )
    if is_tried or not skipped:
        return
    uncopied = compared.get("uncopied", 0)
    advice = "Copies are skipped while too many are under way, and where there are no whole answers"
    if uncopied:
        advice = (
            f"Of these, models or ensembles have asked {uncopied}: such requests are not copied, "
            "but divided"
        )
    weight = f"zmqtriton-ctl canary weight {facts.word} 5"
    requests = figures.count_of(skipped, "request")
    text = f"version {canary['canary']} is not tried: none of {requests} was"
    yield Finding.warning(
        f"{text} copied", f"{advice}; a weight gives it requests.", weight, status
    )
