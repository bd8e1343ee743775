"""The reason that the server is not ready, in words: which versions count, and which lack."""

from __future__ import annotations

from zmqtriton_frontends.inference.catalogue import Catalogue, ModelVersion

#: So many models are named, with so much of their reasons.
_MAX_NAMES, _MAX_REASON = 3, 200


def why_not_ready(catalogue: Catalogue) -> str:
    """Return why the server is not ready, "" if it is.

    Models are named where every client may see them.
    """
    if catalogue.is_ready():
        return ""
    if catalogue.is_draining:
        return "the server drains"
    if not catalogue.has_broker:
        return "the server replaces its broker"
    if catalogue.is_repository_missing:
        return "the server waits for its model repository"
    if catalogue.is_moving:
        return "models move to this server from the one before"
    counted = [
        (name, version)
        for name, versions in catalogue.versions().items()
        for version in versions or (None,)
        if version is None or not version.may_be_missing
    ]
    unready = [each for each in counted if each[1] is None or not each[1].is_ready]
    text = f"{len(unready)} of {len(counted)} model versions that should serve are not ready"
    if not catalogue.can_name_models:
        return text
    names = [_describe(*each) for each in unready]
    more = f", and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f"{text}: {', '.join(names[:_MAX_NAMES])}{more}"


def _describe(name: str, version: ModelVersion | None) -> str:
    """Return a version with the begin of the reason, or with its state."""
    if version is None:
        return f"{name} (it has no version)"
    state = "no instance can execute" if version.is_loaded else version.state
    why = (version.reason_text.partition("\n")[0] or state)[:_MAX_REASON]
    return f"{name} version {version.version} ({why})"
