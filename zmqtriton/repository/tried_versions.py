"""Chooses the versions of a model that a load serves: by its policy, and those that are tried."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from zmqtriton.config import of_add_ons
from zmqtriton.config.errors import ConfigError
from zmqtriton.repository.decisions import Decision, DecisionError, DecisionRecords
from zmqtriton.repository.scan import ScannedModel, VersionChoice, choose_versions


class TriedVersions:
    """The versions of all models that were tried, by this server and by others."""

    def __init__(self, state_directory: str) -> None:
        self._records = DecisionRecords(state_directory)

    def with_decisions(self, scanned: ScannedModel) -> ScannedModel:
        """Return the model with the exceptions that were decided on before this server began."""
        return self._records.apply(scanned)

    def keep(
        self, scanned: ScannedModel, decisions: Sequence[Decision], undecided: Iterable[int]
    ) -> str:
        """Keep decisions for later servers, forget those about other versions.

        Return why that is impossible, or "".
        """
        try:
            for version in undecided:
                self._records.drop(scanned.name, version)
            self._records.keep(scanned, decisions)
        except DecisionError as error:
            return str(error)
        return ""


def configured_canary(config: Any, scanned: ScannedModel) -> Any:
    """Return the canary of the configuration, unless that version is missing or was decided on."""
    settings, selection = of_add_ons.read(of_add_ons.CANARIES, config), scanned.selection
    if settings is None or settings.version not in scanned.versions:
        return None
    tried = settings.version, scanned.version_fingerprints[settings.version]
    decided = {entry[:2] for entry in (*selection.rejected, *selection.promoted)}
    return None if tried in decided else settings


def choose_with_canary(config: Any, scanned: ScannedModel, canary: Any) -> VersionChoice:
    """Apply the version policy to versions that were not rejected, and add those that were tried.

    While a version is tried, nothing else begins to serve.

    Raises ConfigError if no version is left.
    """
    kept = scanned.selection.kept.intersection(scanned.versions)
    if kept:
        return VersionChoice(tuple(sorted(kept)))
    available = scanned.selection.available(scanned.version_fingerprints)
    if canary is None:
        return _with_promotions(config, scanned, available)
    # it is tried against what would serve without it
    others = [n for n in available if n != canary.version] or available
    choice = _with_promotions(config, scanned, others)
    return VersionChoice(tuple(sorted({*choice.versions, canary.version})), choice.warnings)


def _with_promotions(config: Any, scanned: ScannedModel, available: Sequence[int]) -> VersionChoice:
    """Apply the version policy, and add a promoted version that it leaves out.

    Only what was decided since the policy is as it is counts, and nothing higher may have come.
    """
    policy = version_policy(config)
    promoted = [
        number
        for number, contents, of_policy in scanned.selection.promoted
        if of_policy == policy
        and number in available
        and scanned.version_fingerprints[number] == contents
    ]
    try:
        choice = choose_versions(config, available)
    except ConfigError:
        if not promoted:
            raise
        return VersionChoice((max(promoted),))
    higher = {number for number in promoted if number > max(choice.versions)}
    return VersionChoice(tuple(sorted({*choice.versions, *higher})), choice.warnings)


def version_policy(config: Any) -> str:
    """Return the version policy as text, to notice that it has changed."""
    return str(config.version_policy).strip()


def policy_versions(config: Any, present: Iterable[int]) -> frozenset[int]:
    """Return what the policy alone would choose."""
    try:
        return frozenset(choose_versions(config, present).versions)
    except ConfigError:
        return frozenset()
