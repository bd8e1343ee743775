"""Keeps the models of routes as the models are whose routes they have.

It looks at what serves, so it has no memory that a death could lose: a model of routes says by its
parameters which code it was loaded for.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from zmqtriton_addons.routes import names
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_frontends.gateway import Gateway, load, on_behalf_of
from zmqtriton_frontends.serving import Service

_log = logging.getLogger(__name__)
_LOOK_EVERY_S = 0.25
#: How often files are looked at whose generation stays, as it does if only code is exchanged.
_FILES_EVERY_S = 1.0
_MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"
#: The files of an environment, beside a model.
_REQUIREMENTS = ("requirements.txt", "pyproject.toml", "uv.lock")
#: Parameters that say as whom, with which Python and within which limits the model runs.
_COPIED = (
    *("EXECUTION_ENV_PATH", "PYTHON_EXECUTABLE", "PYTHON_REQUIREMENTS", "stub_user"),
    *("MAX_MEMORY_BYTES", "CPU_WEIGHT", names.SECONDS),
)


class Code(NamedTuple):
    """The code of a version that serves."""

    version: int
    #: The directory of the model.
    directory: str
    #: Tells it from other code.
    contents: str

    @property
    def path(self) -> str:
        """The directory of the version."""
        return os.path.join(self.directory, str(self.version))


class RoutesService(Service):
    def __init__(self, gateway: Gateway, listener: socket.socket) -> None:
        """Set up; clients come by HTTP alone, so the socket is closed."""
        listener.close()
        self._gateway = gateway
        #: The generation whose code was looked at, and the code if it has routes, by model.
        self._looked: dict[str, int] = {}
        self._code: dict[str, Code] = {}
        #: The code that was loaded, or could not be, by the model of routes.
        self._tried: dict[str, str] = {}
        self._looking: asyncio.Task[None] | None = None

    async def open(self) -> list[tuple[str, str]]:
        self._looking = asyncio.ensure_future(self._look_on())
        return []

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()

    async def _look_on(self) -> None:
        files_at_s, loop = 0.0, asyncio.get_running_loop()
        while True:
            is_due = loop.time() >= files_at_s
            if is_due:
                files_at_s = loop.time() + _FILES_EVERY_S
            try:
                await self._look(is_due=is_due)
            except ZmqTritonError as error:
                _log.info("cannot look at the code of models: %s", error)
            except Exception:  # noqa: BLE001 - an edge: the next look may go well
                _log.exception("cannot look at the code of models")
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _look(self, *, is_due: bool) -> None:
        serving = {
            version.name: version
            for version in self._gateway.catalogue.newest()
            if not version.name.endswith(names.SUFFIX)
        }
        changed = [n for n, v in serving.items() if self._looked.get(n) != v.generation]
        again = [name for name in self._code if is_due and name in serving]
        if changed or again:
            await self._read(sorted({*changed, *again}))
            self._looked.update({name: serving[name].generation for name in changed})
        for name in [name for name in self._looked if name not in serving]:
            del self._looked[name]
            self._code.pop(name, None)
        loads = [
            self._load(name, code, serving[name].config)
            for name, code in self._code.items()
            if name in serving and self._tried.get(name + names.SUFFIX) != code.contents
        ]
        await asyncio.gather(*loads, *map(self._unload, self._left_over()))

    async def _read(self, models: list[str]) -> None:
        answer = await self._gateway.call(names.CODE, {"models": models})
        for name in models:
            row = answer.get(name)
            code = None if row is None else Code(**row)
            if code is not None and Path(code.path, names.FILE).is_file():
                self._code[name] = code
            else:
                self._code.pop(name, None)

    async def _load(self, name: str, code: Code, config: Mapping[str, Any]) -> None:
        routed = name + names.SUFFIX
        self._tried[routed] = code.contents
        if self._loaded_contents(routed) == code.contents:
            return
        document, files = _model_of(routed, code, config)
        try:
            with on_behalf_of("the process of routes"):
                await load(
                    self._gateway, routed, {"config": json.dumps(document)}, files, of_service=True
                )
        except ZmqTritonError as error:
            _log.error("the routes of model '%s' cannot be loaded: %s", name, error)

    def _loaded_contents(self, routed: str) -> str:
        for version in self._gateway.catalogue.newest():
            if version.name == routed:
                return names.parameter(version.config, names.CONTENTS)
        return ""

    def _left_over(self) -> list[str]:
        """Return the models of routes whose models have none, or are gone."""
        return [
            version.name
            for version in self._gateway.catalogue.newest()
            if version.name.endswith(names.SUFFIX)
            and version.config.get("backend") == names.BACKEND
            and version.name[: -len(names.SUFFIX)] not in self._code
        ]

    async def _unload(self, routed: str) -> None:
        self._tried.pop(routed, None)
        with (
            suppress(ZmqTritonError),
            on_behalf_of("the process of routes"),
        ):  # one that is unloaded otherwise, or cannot be now
            await self._gateway.call("unload", {"model": routed, "of_service": True})


def _model_of(
    routed: str, code: Code, config: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the configuration and the files of the model of routes."""
    rows = {
        name: [
            entry["data_type"],
            [*([-1] if config.get("max_batch_size") else ()), *entry["dims"]],
        ]
        for entry in config.get("input", ())
        for name in (entry["name"],)
    }
    own = {name: names.parameter(config, name) for name in _COPIED}
    parameters = {
        name: value.replace(_MODEL_DIRECTORY, code.directory)
        for name, value in own.items()
        if value
    }
    parameters |= {
        names.DIRECTORY: code.path,
        names.CONTENTS: code.contents,
        names.INPUTS: json.dumps(rows),
    }
    document = {
        "name": routed,
        "backend": names.BACKEND,
        "max_batch_size": 0,
        "model_transaction_policy": {"decoupled": True},
        "version_policy": {"specific": {"versions": [code.version]}},
        "input": [
            {"name": names.HEAD, "data_type": "TYPE_STRING", "dims": [1]},
            {"name": names.BODY, "data_type": "TYPE_UINT8", "dims": [-1]},
        ],
        "output": [
            {"name": names.HEAD, "data_type": "TYPE_STRING", "dims": [1]},
            {"name": names.BODY, "data_type": "TYPE_UINT8", "dims": [-1]},
        ],
        "instance_group": [{"count": 1, "kind": "KIND_CPU"}],
        "parameters": {name: {"string_value": value} for name, value in parameters.items()},
    }
    files = {f"file:{code.version}/{names.FILE}": Path(code.path, names.FILE).read_bytes()}
    for name in {*_REQUIREMENTS, own["PYTHON_REQUIREMENTS"]} - {""}:
        path = os.path.join(code.directory, name)
        if os.path.isfile(path):
            files[f"file:{name}"] = Path(path).read_bytes()
    return document, files
