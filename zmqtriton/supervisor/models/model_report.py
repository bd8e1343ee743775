"""Reports on models for operators and clients, and the repository index. Does no I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from zmqtriton.supervisor.actions import RepositoryNames
from zmqtriton.supervisor.models.model import NO_VERSION, ServedModel
from zmqtriton.supervisor.models.version import last_load_failed, serving
from zmqtriton.supervisor.states import UNLOADED, ModelState
from zmqtriton_floor.reasons import AT_REST, Kind, Reason

_OF_MEMBERS = frozenset((Kind.MEMBER_NOT_LOADED, Kind.MEMBER_NOT_READY))


def is_ready(model: ServedModel, version: int) -> bool:
    """True if this version can execute now; -1: any version."""
    meant = [one for number, one in model.versions.items() if version in (-1, number)]
    return any(one.reported_state[0] is ModelState.READY for one in meant) and not model.avoidances


def is_loaded(model: ServedModel) -> bool:
    """True if every version that should be loaded serves."""
    return bool(model.versions) and all(
        version.is_serving or version.reason == UNLOADED for version in model.versions.values()
    )


def lacks_versions(model: ServedModel) -> bool:
    """True if it should serve, but no version was found by its last reading or load."""
    history = model.history
    return not model.versions and (history.has_no_version or history.read_problem is not None)


def serving_config(models: Mapping[str, ServedModel], name: str, version: int) -> dict[str, Any]:
    """Return the configuration of a serving version, or with -1 of the highest; {} without one."""
    generation = serving(models[name].versions, version) if name in models else None
    finished = generation.final_config if generation is not None else None
    config: dict[str, Any] = {} if finished is None else json.loads(finished.config)
    return config


def code_of(model: ServedModel) -> dict[str, Any] | None:
    """Return the path of the highest serving version's code; None if none serves."""
    generation = serving(model.versions)
    if generation is None:
        return None
    blueprint, number = generation.blueprint, generation.version
    return {
        "version": number,
        "directory": blueprint.directory,
        "contents": blueprint.versions[number].contents or str(generation.number),
    }


def index_entries(model: ServedModel) -> Iterator[dict[str, Any]]:
    """Return the model's entries in the repository index."""
    for number, state, reason in _judged(model):
        yield {
            "name": model.name,
            "version": str(number),
            "state": state.value,
            **_shown(reason),
        }
    if not model.versions:
        read_problem = model.history.read_problem
        # Triton's index has the name alone; programs of ours read why
        why = {"why": NO_VERSION.document()} if model.history.has_no_version else {}
        yield (
            unavailable_entry(model.name, read_problem)
            if read_problem
            else {"name": model.name, **why}
        )


def troubles(model: ServedModel) -> Iterator[dict[str, str]]:
    """Return the reasons why versions are not ready or not reloaded, unless it is on purpose."""
    judged = list(_judged(model)) or [("", ModelState.UNAVAILABLE, model.history.read_problem)]
    for number, state, reason in judged:
        cause = state.value if state is ModelState.LOADING else ""
        if reason is not None and reason.kind not in AT_REST:
            cause = _cause_of(reason)
        if cause:
            what = "load" if state is ModelState.READY else "version"
            yield {"model": model.name, "version": str(number), "what": what, "cause": cause}


def _cause_of(reason: Reason) -> str:
    """Return the kind of the cause; for an ensemble, its member's directory is the missing one."""
    return str(
        next((one.kind for one in reason.chain if one.kind in _OF_MEMBERS), reason.innermost.kind)
    )


def _judged(model: ServedModel) -> Iterator[tuple[int | str, ModelState, Reason | None]]:
    """Return each version with its state, and the reason of the state."""
    read_problem = model.history.read_problem
    for number, version in sorted(model.versions.items()):
        state, reason = version.reported_state
        if state is ModelState.READY and model.avoidances:
            state, reason = ModelState.UNAVAILABLE, model.avoidances[0]
        elif state is ModelState.READY and read_problem:
            reason = last_load_failed(read_problem)
        yield number, state, reason


def unavailable_entry(name: str, reason: Reason) -> dict[str, Any]:
    """Return the entry of a model that has no version."""
    return {"name": name, "state": ModelState.UNAVAILABLE.value, **_shown(reason)}


def _shown(reason: Reason | None) -> dict[str, Any]:
    """Return a reason for people, and for programs."""
    return {} if reason is None else {"reason": reason.text, "why": reason.document()}


def table_rows(model: ServedModel) -> list[tuple[str, str, str]]:
    """Return the model's lines in the table that the server prints at start."""
    rows = [
        (model.name, str(number), _status(*version.reported_state))
        for number, version in model.versions.items()
    ]
    if model.history.read_problem:
        rows.append((model.name, "-", _status(ModelState.UNAVAILABLE, model.history.read_problem)))
    elif not rows:
        rows.append((model.name, "-", NO_VERSION.text))
    return rows


def _status(state: ModelState, reason: Reason | None) -> str:
    return f"{state.value}: {reason.text}" if reason else state.value


def repository_index(
    names: RepositoryNames, models: Mapping[str, ServedModel], never_loaded: Reason | None
) -> list[dict[str, Any]]:
    """Return the entries; `never_loaded` is the reason of models that were never tried."""
    entries: list[dict[str, Any]] = []
    for name in sorted({*names, *models}):
        problem = names.get(name)
        # what is loaded serves on, whatever becomes of its files
        is_served = is_silent(problem) and name in models
        if problem is not None and not is_served:
            entries.append(unavailable_entry(name, problem))
        elif name in models:
            entries += index_entries(models[name])
        else:
            entries.append(
                unavailable_entry(name, never_loaded) if never_loaded else {"name": name}
            )
    return entries


def is_silent(problem: Reason | None) -> bool:
    """True if only the repository's earlier listing has the model, and it does not answer now."""
    return problem is not None and problem.kind == Kind.REPOSITORY_SILENT
