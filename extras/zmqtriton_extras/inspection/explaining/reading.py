"""Questions to a server about a model at work, beyond the facts of each model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from zmqtriton.sdk.models import AnswerReader, Facts
from zmqtriton_extras.inspection.explaining.costs import read_costs
from zmqtriton_extras.inspection.explaining.sharing import Memory

#: Maximum number of ensembles within each other that are followed.
_MOST_CHAINS = 20


class AtWork(NamedTuple):
    memory: Memory | None = None
    #: The model's configuration; empty if it has had no requests.
    config: Mapping[str, Any] = MappingProxyType({})
    #: The models of the steps of each ensemble, from the model's own on.
    steps: Mapping[str, Sequence[str]] = MappingProxyType({})
    #: Lines with the stacks of the threads, by instance; only if it is at work.
    stacks: Mapping[str, Sequence[str]] = MappingProxyType({})


def ask(reader: AnswerReader, facts: Facts) -> AtWork:
    """Ask about a model; in an overview of all models about its configuration alone."""
    rows = facts.rows("counts")
    if not any(row.get("executed") or row.get("unanswered") for row in rows):
        return AtWork(_memory(reader, facts))
    steps: dict[str, Sequence[str]] = {}
    config: Mapping[str, Any] = reader.ask("config", {"model": facts.model})
    documents = {facts.model: config}
    while documents and len(steps) < _MOST_CHAINS:
        name, document = documents.popitem()
        if names := steps_of(document):
            steps[name] = names
            chains = [each for each in names if each not in steps and not facts.instances(each)]
            documents |= {each: reader.ask("config", {"model": each}) for each in chains}
    is_at_work = any(row.get("unanswered") or row.get("oldest_execution_ns") for row in rows)
    has_look = is_at_work and bool(facts.stubs) and not facts.is_overview
    stacks = reader.stacks(facts.model) if has_look else {}
    return AtWork(_memory(reader, facts), config, steps, stacks)


def _memory(reader: AnswerReader, facts: Facts) -> Memory | None:
    return None if facts.is_overview else read_costs(facts, reader.latest.get("processes", {}))


def steps_of(config: Mapping[str, Any]) -> list[str]:
    """Return the models of an ensemble's steps, each once; [] for another model."""
    steps = config.get("ensemble_scheduling", {}).get("step", ())
    return list(dict.fromkeys(step["model_name"] for step in steps))
