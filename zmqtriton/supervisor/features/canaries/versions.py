"""Reads which versions of a model serve, for a canary, and has later loads follow its decision."""

from __future__ import annotations

import json
from typing import Any

from zmqtriton.config.canaries import CanarySettings
from zmqtriton.supervisor.features.canaries import likeness
from zmqtriton.supervisor.features.canaries.canary import Canary, Phase
from zmqtriton.supervisor.models.model import Model
from zmqtriton.supervisor.models.version import serving_generations


def serving_versions(model: Model) -> list[int]:
    return [number for number, version in model.versions.items() if version.is_serving]


def served_contents(model: Model) -> dict[int, str]:
    """Return the fingerprints of the files of the serving versions."""
    served = {n: version.generation for n, version in model.versions.items() if version.is_serving}
    return {n: g.blueprint.versions[n].contents for n, g in served.items() if g is not None}


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
    stable = _config(model, canary.stable)
    problem = likeness.find_difference(stable, _config(model, canary.version))
    return problem or why_not_copied(model, canary.stable, canary.settings)


def why_not_copied(model: Model, stable: int, settings: CanarySettings) -> str:
    """Return why requests cannot be copied, if they are to be; or ""."""
    return likeness.find_obstacle_to_copies(_config(model, stable)) if settings.shadow else ""


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
        promoted=tuple(entry for entry in selection.promoted if entry[0] not in kept),
    )


def keep_decision(model: Model, canary: Canary) -> None:
    """Have later loads follow the decision until the files change."""
    selection = model.selection._replace(kept=frozenset())
    if canary.phase is Phase.ABORTING:
        rejected = [canary.version]
    else:
        tried = canary.version, canary.contents.get(canary.version, "")
        selection = selection._replace(promoted=(*selection.promoted, tried))
        # requests without a version get the highest
        rejected = [canary.stable] if canary.stable > canary.version else []
    entries = ((number, canary.contents.get(number, "")) for number in rejected)
    model.selection = selection._replace(rejected=(*selection.rejected, *entries))


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
