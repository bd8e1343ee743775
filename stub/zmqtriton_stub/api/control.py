"""load_model, unload_model and is_model_ready: a model's calls to the server's control plane.

The supervisor answers over the lifeline; the calling thread waits, and the main one attends to its
other duties meanwhile. The supervisor decides what is allowed at all.
"""

from __future__ import annotations

import json
from typing import Any, Callable

from zmqtriton_floor import staging, wire
from zmqtriton_floor.errors import InvalidArgument, ZmqTritonError
from zmqtriton_stub import instance
from zmqtriton_stub.api.errors import TritonModelException


def load_model(model_name: str, config: str = "", files: Any = None) -> None:
    """Load a model and return when it is ready.

    Files need a configuration, and replace the directory.
    """
    _check("load_model", (model_name, str), (config, str))
    if files is not None and not isinstance(files, dict):
        raise TritonModelException(
            f"failed to load model '{model_name}', files should be a dictionary of file paths and "
            "file contents"
        )
    parameters: dict[str, str] = {"config": config} if config else {}
    staged: dict[str, bytes] = {}
    for path, content in (files or {}).items():
        _check("load_model", (path, str), (content, bytes))
        if path.startswith(staging.PREFIX):
            staged[path] = content
        else:
            parameters[path] = ""  # the supervisor refuses it by its name
    _load(model_name, parameters, staged)


def _load(model: str, parameters: dict[str, str], files: dict[str, bytes]) -> None:
    doing, current = "Failed to load model", instance.here()
    runtime, serial = ("", 0) if current is None else (current.runtime, current.serial)
    if current is None or current.call is None:
        files = {}  # nobody would take them over
    try:
        arguments = staging.arguments(runtime, serial, model, parameters, files)
    except ZmqTritonError as error:
        raise instance.refusal(doing, error.text) from None
    _call(doing, "load", arguments)


def unload_model(model_name: str, unload_dependents: bool = False) -> None:
    """Unload a model and return when nobody can ask for it any more."""
    _check("unload_model", (model_name, str), (unload_dependents, bool))
    arguments = {"model": model_name, "unload_dependents": unload_dependents}
    _call("Failed to unload model", "unload", arguments)


def is_model_ready(model_name: str, model_version: str = "") -> bool:
    """Return whether a model can execute now; without a version, whether any version can."""
    _check("is_model_ready", (model_name, str), (model_version, str))
    doing = "Failed to check model readiness"
    try:
        version = int(model_version) if model_version else -1
        if model_version and version < 0:
            raise ValueError
    except ValueError:
        raise instance.refusal(
            doing,
            f"failed to get model version from specified version string '{model_version}', "
            "version should be an integral value > 0",
        ) from None
    return bool(_call(doing, "ready", {"model": model_name, "version": version}))


def _check(function: str, *arguments: tuple[Any, type]) -> None:
    for value, kind in arguments:
        if not isinstance(value, kind):
            raise TypeError(f"{function}() takes a {kind.__name__} here, got {type(value)}")


def _call(doing: str, verb: str, arguments: dict[str, Any]) -> Any:
    instance.check_is_no_program()
    current = instance.here()
    call: Callable[[str, str], Any] | None = None if current is None else current.call
    if call is None:
        raise TritonModelException(
            f"{doing}: models are controlled from initialize() and execute() of a model that is "
            "being served, not from auto_complete_config() or finalize()"
        )
    try:
        document = json.dumps(arguments)
        if len(document) > wire.MAX_DOCUMENT:
            raise InvalidArgument(f"the request is too large: {len(document)} bytes")
        return call(verb, document)
    except ZmqTritonError as error:
        raise instance.refusal(doing, error.text) from None
