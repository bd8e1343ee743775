"""Reads which versions of a model serve, for a canary, and has later loads follow its decision."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from zmqtriton.repository import Decision, Promotion, VersionSelection
from zmqtriton.supervisor import Model, serving_generations
from zmqtriton_addons.canaries.canary import Canary, Phase
from zmqtriton_addons.canaries.settings import CanarySettings
from zmqtriton_floor.reasons import Kind


def serving_versions(model: Model) -> list[int]:
    return [number for number, version in model.versions.items() if version.is_serving]


def stable_beside(model: Model, version: object) -> int:
    """Return the highest version that serves beside this one; 0 if none does."""
    return max(
        (number for number in serving_versions(model) if str(number) != str(version)), default=0
    )


def take_over(canary: Canary, model: Model) -> None:
    """Take note of what the serving versions were loaded from."""
    for number in serving_versions(model):
        generation = model.versions[number].generation
        if generation is not None:
            canary.take_over(generation.blueprint, (number,))


def is_verdict(model: Model, canary: Canary) -> bool:
    """True if a version has stopped by its own fault, and was not unloaded or removed."""
    tried = (model.versions.get(number) for number in (canary.version, canary.stable))
    reasons = (version.reason for version in tried if version is not None)
    return any(reason is not None and reason.has(Kind.GIVEN_UP) for reason in reasons)


def is_decoupled(model: Model, canary: Canary) -> bool:
    """True if requests get any number of responses."""
    return _is_decoupled(_config(model, canary.stable))


def why_not_serving(model: Model, canary: Canary) -> str:
    """Return which of the two versions does not serve, and why; or ""."""
    for number in (canary.version, canary.stable):
        version = model.versions.get(number)
        if version is None:
            return f"version {number} is not in the model's directory"
        if not version.is_serving:
            why = version.reason.text if version.reason else version.state.value
            return f"version {number} does not serve: {why}"
    return ""


def why_unlike(model: Model, canary: Canary) -> str:
    """Return why the canary cannot take what the stable version takes, or ""."""
    problem = find_difference(_config(model, canary.stable), _config(model, canary.version))
    return problem or why_not_copied(model, canary.stable, canary.settings)


def why_not_copied(model: Model, stable: int, settings: CanarySettings) -> str:
    """Return why requests cannot be copied, if they are to be; or ""."""
    return find_obstacle_to_copies(_config(model, stable)) if settings.shadow else ""


def _config(model: Model, number: int) -> dict[str, Any]:
    generation = model.versions[number].generation
    final = generation.final_config if generation is not None else None
    config: dict[str, Any] = json.loads(final.config) if final is not None else {}
    return config


def keep_both(model: Model, canary: Canary) -> None:
    """Have loads serve both versions, whatever the version policy says and was decided before."""
    kept = frozenset({*serving_versions(model), canary.stable, canary.version})
    selection = model.selection
    model.selection = selection._replace(
        kept=kept,
        rejected=tuple(entry for entry in selection.rejected if entry[0] not in kept),
        promoted=tuple(each for each in selection.promoted if each.version != canary.version),
    )


def keep_decision(model: Model, canary: Canary) -> tuple[Decision, ...]:
    """Have later loads follow the decision until the files change; return it for later servers."""
    decided = tuple(
        Decision(number, canary.contents.get(number, ""), is_promotion, canary.policy, reason)
        for number, is_promotion, reason in _outcomes(canary)
    )
    selection = model.selection
    rejected = [each[:2] for each in decided if not each.is_promotion]
    promoted = [Promotion(*each[:2], canary.policy) for each in decided if each.is_promotion]
    model.selection = VersionSelection(
        rejected=(*selection.rejected, *rejected), promoted=(*selection.promoted, *promoted)
    )
    return decided


def _outcomes(canary: Canary) -> Iterator[tuple[int, bool, str]]:
    """Yield the versions of a decision: whether each is promoted, and why."""
    if canary.phase is Phase.ABORTING:
        yield canary.version, False, canary.reason
        return
    yield canary.version, True, canary.reason
    if canary.stable > canary.version:
        # requests without a version get the highest
        yield canary.stable, False, f"version {canary.version} was promoted"


def is_policy_choice(model: Model, number: int) -> bool:
    """True if the version policy wants this version."""
    serving = serving_generations(model.versions)
    return any(number in each.blueprint.policy_versions for each in serving)


def old_version_stays(model: Model, canary: Canary) -> bool:
    """True if the version that the canary replaces serves on, for those who name it."""
    is_older = canary.phase is Phase.PROMOTING and canary.stable < canary.version
    return is_older and is_policy_choice(model, canary.stable)


def has_left(model: Model, canary: Canary) -> bool:
    """True if the version that gets no new requests has answered its last one."""
    version = model.versions.get(canary.leaving)
    return version is None or version.generation is None or old_version_stays(model, canary)


# Two versions of a model take the same requests, by their final configurations: a request is
# divided before it is checked, so what fits the one must fit the other.


def find_difference(stable: Mapping[str, Any], canary: Mapping[str, Any]) -> str:
    """Return why the canary cannot take the stable version's requests, or ""."""
    for what, of in (
        ("max_batch_size", lambda config: config.get("max_batch_size", 0)),
        ("'decoupled'", _is_decoupled),
        ("sequence batching", has_sequences),
        ("inputs", lambda config: _tensors(config, "input")),
    ):
        if of(stable) != of(canary):
            return f"{what} of the two versions differ{'' if what == 'inputs' else 's'}"
    outputs = _tensors(canary, "output")
    missing = (
        f"it does not have the output '{name}' as the stable version has it"
        for name, tensor in _tensors(stable, "output").items()
        if outputs.get(name, ("",))[0] != tensor[0]
    )
    return next(missing, "")


def find_obstacle_to_copies(config: Mapping[str, Any]) -> str:
    """Return why requests of this model cannot be copied, or ""."""
    if _is_decoupled(config):
        return "requests of a decoupled model cannot be copied: they have many answers or none"
    if has_sequences(config):
        return "requests of sequences cannot be copied: each depends on those before it"
    return ""


def _is_decoupled(config: Mapping[str, Any]) -> bool:
    return bool((config.get("model_transaction_policy") or {}).get("decoupled"))


def has_sequences(config: Mapping[str, Any]) -> bool:
    return "sequence_batching" in config


def _tensors(config: Mapping[str, Any], which: str) -> dict[str, tuple[Any, ...]]:
    """Return type, dimensions and necessity of each, by name."""
    return {
        tensor["name"]: (tensor["data_type"], tuple(tensor["dims"]), tensor.get("optional", False))
        for tensor in config.get(which, ())
    }
