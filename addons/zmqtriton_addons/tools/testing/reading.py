"""Reads a model as a load does: its configuration, its version, its file and its first instance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from zmqtriton.config import (
    Host,
    apply_group_defaults,
    backend_places,
    find_model_file,
    find_runtime,
    instance_specs,
    load_config,
    merge_completion,
    to_json,
)
from zmqtriton.repository import choose_versions, scan_model, subdirectories
from zmqtriton.supervisor import visible_gpus
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InvalidArgument, NotFound


class ModelFiles(NamedTuple):
    """One version of a model, before its code has run."""

    load: wire.LoadModel
    #: The configuration as the files say it.
    config: Any
    config_path: Path | None
    host: Host

    def completed(self, reply: str) -> str:
        """Return the final configuration, given what `auto_complete_config` has returned."""
        return to_json(merge_completion(self.config, reply, host=self.host, path=self.config_path))


def read_model(directory: Path, version: int | None) -> ModelFiles:
    """Read a model's directory; without a version, the highest that would be served.

    Raises a ZmqTritonError with the reason that a load would give.
    """
    directory = directory.absolute()
    if not directory.is_dir():
        raise NotFound(f"there is no model directory {directory}")
    scanned = scan_model(directory, directory.parent)
    if not scanned.versions:
        raise NotFound(_no_version_text(directory))
    host = Host(visible_gpus())
    config = load_config(scanned.name, directory, scanned.config_path, host=host)
    if config.HasField("ensemble_scheduling"):
        raise InvalidArgument(f"model '{scanned.name}' is an ensemble: it has no code to be tested")
    if version is None:
        version = max(choose_versions(config, scanned.versions).versions)
    elif version not in scanned.versions:
        raise NotFound(f"model '{scanned.name}' has no version {version}")
    places = backend_places()
    file = find_model_file(config, directory, version, places)
    runtime = find_runtime(config, places)
    draft = type(config)()
    draft.CopyFrom(config)
    apply_group_defaults(draft, host.gpus)
    first = instance_specs(draft)[0]
    load = wire.LoadModel(
        *(first.name, scanned.name, version, first.kind, first.device_id),
        directory=str(directory),
        path=str(file),
        config=to_json(config),
        auto_complete=1,
        backend_settings=json.dumps({}),
        package=runtime.package if runtime and runtime.file == file else "",
    )
    return ModelFiles(load, config, scanned.config_path, host)


def _no_version_text(directory: Path) -> str:
    text = f"{directory} has no version directory, such as {directory / '1'}"
    models = [
        path.name for path in subdirectories(directory) if scan_model(path, directory).versions
    ]
    if models:
        text += f"; it is a repository of models, name one of them: {', '.join(models)}"
    return text
