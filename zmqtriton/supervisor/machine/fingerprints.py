"""Fingerprints of the versions of a model: files that must be loaded anew if they change."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from zmqtriton.config.parameters import CANARY_PARAMETERS
from zmqtriton.environments.demand import Environment, EnvironmentSpec
from zmqtriton.repository.scan import ScannedModel
from zmqtriton.supervisor.models.blueprint import VersionBlueprint

#: Fields that only decide which versions and how many instances there are.
_ONLY_INSTANCES = ("instance_group", "version_policy")


def with_fingerprints(
    versions: Mapping[int, VersionBlueprint],
    config: Any,
    scanned: ScannedModel,
    environment: Environment | EnvironmentSpec,
    of_backend: str,
) -> dict[int, VersionBlueprint]:
    """Return the versions with the fingerprints of what they are."""
    contents = {number: scanned.version_fingerprints[number] for number in versions}
    return {
        number: _of_changes(
            replace(version, contents=contents[number]),
            config,
            environment,
            contents[number] + of_backend,
        )
        for number, version in versions.items()
    }


def _of_changes(
    version: VersionBlueprint,
    config: Any,
    environment: Environment | EnvironmentSpec,
    contents: str,
) -> VersionBlueprint:
    """Return the version with fingerprints for changes that need no new generation.

    It has none if instances are bound to more than their number: a sequence belongs to one, a rate
    limiter counts them. Nor may other code answer from the cache of what served before.
    """
    groups = config.instance_group
    is_bound = config.HasField("sequence_batching") or any(g.passive for g in groups)
    if is_bound or config.HasField("ensemble_scheduling"):
        return version
    if any(group.HasField("rate_limiter") for group in groups):
        return version
    without_code = _fingerprint(config, tuple(environment))
    rest = type(config)()
    rest.CopyFrom(config)
    for member in _ONLY_INSTANCES:
        rest.ClearField(member)
    for name in CANARY_PARAMETERS:
        rest.parameters.pop(name, None)
    return replace(
        version,
        fingerprint_without_instances=_fingerprint(rest, contents, tuple(environment)),
        fingerprint_without_code="" if config.response_cache.enable else without_code,
    )


def _fingerprint(config: Any, *more: object) -> str:
    digest = hashlib.blake2b(config.SerializeToString(deterministic=True), digest_size=16)
    for part in more:
        digest.update(f"{part}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()
