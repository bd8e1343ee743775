"""The arguments that several control calls have."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from zmqtriton_floor.errors import InvalidArgument


def required_model_name(arguments: Mapping[str, Any]) -> str:
    """Return the name of the model. Raises InvalidArgument for an impossible one."""
    name = arguments.get("model")
    if not isinstance(name, str) or not name:
        raise InvalidArgument("Model name cannot be empty. Please enter a valid name to deploy.")
    if "/" in name or "\\" in name or "\0" in name or name in (".", ".."):
        raise InvalidArgument(
            f"invalid model name '{name}', model name must not contain path traversal characters"
        )
    return name


def optional_model_name(arguments: Mapping[str, Any]) -> str:
    """Return the name of a model; "" if none is named. Raises InvalidArgument."""
    name = arguments.get("model", "")
    if type(name) is not str:
        raise InvalidArgument("the name of a model must be a text")
    return name


def changes_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes of settings. Raises InvalidArgument."""
    changes = arguments.get("changes", {})
    if type(changes) is not dict:
        raise InvalidArgument("changes of settings must be an object")
    return changes


def check_names(what: str, arguments: Mapping[str, Any], settings: Collection[str]) -> None:
    """Raise InvalidArgument for an argument without a meaning, which is a spelling mistake."""
    for name in arguments:
        if name not in settings:
            there_are = ", ".join(sorted(settings))
            raise InvalidArgument(f"{what} has no setting '{name}'; there are {there_are}")
