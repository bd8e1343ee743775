"""Chooses the versions of a model that a load serves: by its policy, and those that are tried."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from zmqtriton.config.canaries import CanarySettings, settings_of_config
from zmqtriton.config.errors import ConfigError
from zmqtriton.repository.scan import ScannedModel, VersionChoice, choose_versions


def configured_canary(config: Any, scanned: ScannedModel) -> CanarySettings | None:
    """Return the canary of the configuration, unless that version is missing or was decided on."""
    settings, selection = settings_of_config(config), scanned.selection
    if settings is None or settings.version not in scanned.versions:
        return None
    tried = settings.version, scanned.version_fingerprints[settings.version]
    return None if tried in (*selection.rejected, *selection.promoted) else settings


def choose_with_canary(
    config: Any, scanned: ScannedModel, canary: CanarySettings | None
) -> VersionChoice:
    """Apply the version policy to versions that were not rejected, and add the canary.

    While a version is tried, nothing else begins to serve.

    Raises ConfigError if no version is left.
    """
    kept = scanned.selection.kept.intersection(scanned.versions)
    if kept:
        return VersionChoice(tuple(sorted(kept)))
    available = scanned.selection.available(scanned.version_fingerprints)
    if canary is None:
        return choose_versions(config, available)
    # it is tried against what would serve without it
    choice = choose_versions(config, [n for n in available if n != canary.version] or available)
    return VersionChoice(tuple(sorted({*choice.versions, canary.version})), choice.warnings)


def policy_versions(config: Any, present: Iterable[int]) -> frozenset[int]:
    """Return what the policy alone would choose."""
    try:
        return frozenset(choose_versions(config, present).versions)
    except ConfigError:
        return frozenset()
