"""Loads and unloads the models of routes, following the models that have routes.

Run as `python -m zmqtriton_extras.routes.process`. It keeps no state that a death could lose, but
looks at the serving models: the parameters of a model of routes tell which code it was loaded for.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from zmqtriton.sdk.frontend import Gateway, load
from zmqtriton.sdk.process import Service, prctl, run
from zmqtriton.sdk.wire import ZmqTritonError
from zmqtriton_extras.routes import names

_log = logging.getLogger(__name__)

#: The name of this process in the server's log, for what it changes.
_SELF = "the process of routes"
_LOOK_EVERY_S = 0.25
#: Interval at which files are checked whose generation stays, because only code was exchanged.
_FILES_EVERY_S = 1.0
_MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"
#: The files of an environment, beside a model.
_REQUIREMENTS = ("requirements.txt", "pyproject.toml", "uv.lock")
#: Parameters that say as whom, with which Python and within which limits the model runs.
_COPIED = (
    "EXECUTION_ENV_PATH",
    "PYTHON_EXECUTABLE",
    "PYTHON_REQUIREMENTS",
    "stub_user",
    "max_memory_bytes",
    "max_segment_bytes",
    "cpu_weight",
    names.SECONDS,
    names.PATH,
)
#: Maximum number of requests at the same time.
_AT_ONCE = "1024"


class Code(NamedTuple):
    """The code of a serving version."""

    version: int
    #: The directory of the model.
    directory: str
    #: Tells it from other code.
    contents: str

    @property
    def path(self) -> str:
        """The directory of the version."""
        return os.path.join(self.directory, str(self.version))


class _Attempt(NamedTuple):
    """The code of a model of routes, its generation, and the reason of a failure."""

    code: Code
    generation: int
    #: Reason why its routes cannot be served; "" if they can.
    refusal: str


class RoutesService(Service):
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        #: The generation whose code was looked at, and the code if it has routes, by model.
        self._looked: dict[str, int] = {}
        self._code: dict[str, Code] = {}
        #: The last load, or attempt of one, by the model of routes.
        self._tried: dict[str, _Attempt] = {}
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
        configs = {name: serving[name].config for name in self._code if name in serving}
        refusals = self._refusals(configs)
        attempts = {
            name: _Attempt(self._code[name], serving[name].generation, refusals.get(name, ""))
            for name in configs
        }
        loads = [
            self._load(name, attempt, configs[name])
            for name, attempt in attempts.items()
            if self._tried.get(name + names.SUFFIX) != attempt
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

    def _refusals(self, configs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
        """Return why models cannot have their paths; routes that already serve keep their path."""
        paths = {n: path for n, config in configs.items() if (path := _own_path(config))}
        if not paths:
            return {}
        held = {name for name in paths if _own_path(self._loaded(name)) == paths[name]}
        taken: dict[str, str] = {}
        refusals: dict[str, str] = {}
        for name, path in sorted(paths.items(), key=lambda row: (row[0] not in held, row[0])):
            refusal = names.path_problem(path)
            others = [other for other in taken if names.are_within(path, other)]
            if others and not refusal:
                refusal = names.taken_text(path, others[0], taken[others[0]])
            if refusal:
                refusals[name] = refusal
            else:
                taken[path] = name
        return refusals

    async def _load(self, name: str, attempt: _Attempt, config: Mapping[str, Any]) -> None:
        routed = name + names.SUFFIX
        self._tried[routed] = attempt
        document = _model_of(routed, attempt, config)
        if _contents(self._loaded(name)) == _contents(document):
            return
        try:
            await load(
                self._gateway,
                routed,
                {"config": json.dumps(document)},
                _files_of(attempt.code, config),
                _SELF,
                of_service=True,
            )
        except ZmqTritonError as error:
            _log.error("the routes of model '%s' cannot be loaded: %s", name, error)
        else:
            _log.info("routes of model '%s' are served at %s", name, names.path_of(config, name))

    def _loaded(self, name: str) -> Mapping[str, Any]:
        """Return the configuration of the model of a model's routes; {} if it does not serve."""
        for version in self._gateway.catalogue.newest():
            if version.name == name + names.SUFFIX:
                return version.config
        return {}

    def _left_over(self) -> list[str]:
        """Return the models of routes whose models have no routes any more, or are gone."""
        return [
            version.name
            for version in self._gateway.catalogue.newest()
            if version.name.endswith(names.SUFFIX)
            and version.config.get("backend") == names.BACKEND
            and version.name[: -len(names.SUFFIX)] not in self._code
        ]

    async def _unload(self, routed: str) -> None:
        self._tried.pop(routed, None)
        with suppress(ZmqTritonError):  # one that is unloaded otherwise, or cannot be now
            await self._gateway.call("unload", {"model": routed, "of_service": True}, _SELF)


def _own_path(config: Mapping[str, Any]) -> str:
    return names.parameter(config, names.PATH)


def _contents(config: Mapping[str, Any]) -> str:
    return names.parameter(config, names.CONTENTS)


def _model_of(routed: str, attempt: _Attempt, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of the model of routes."""
    code = attempt.code
    rows = {
        name: [
            entry["data_type"],
            [*([-1] if config.get("max_batch_size") else ()), *entry["dims"]],
        ]
        for entry in config.get("input", ())
        for name in (entry["name"],)
    }
    parameters = {
        name: value.replace(_MODEL_DIRECTORY, code.directory)
        for name in _COPIED
        if (value := names.parameter(config, name))
    }
    parameters |= {names.DIRECTORY: code.path, names.INPUTS: json.dumps(rows)}
    parameters["MAX_INFLIGHT"] = _AT_ONCE
    if attempt.refusal:
        parameters[names.REFUSAL] = attempt.refusal
    made_of = json.dumps([code.contents, parameters]).encode()
    parameters[names.CONTENTS] = hashlib.sha256(made_of).hexdigest()
    head, body = (
        {"name": names.HEAD, "data_type": "TYPE_STRING", "dims": [1]},
        {"name": names.BODY, "data_type": "TYPE_UINT8", "dims": [-1]},
    )
    return {
        "name": routed,
        "backend": names.BACKEND,
        "max_batch_size": 0,
        "model_transaction_policy": {"decoupled": True},
        "version_policy": {"specific": {"versions": [code.version]}},
        "input": [head, body],
        "output": [head, body],
        "instance_group": [{"count": 1, "kind": "KIND_CPU"}],
        "parameters": {name: {"string_value": value} for name, value in parameters.items()},
    }


def _files_of(code: Code, config: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the files of the model of routes."""
    files = {f"file:{code.version}/{names.FILE}": Path(code.path, names.FILE).read_bytes()}
    requirements = names.parameter(config, "PYTHON_REQUIREMENTS")
    for name in {*_REQUIREMENTS, requirements} - {""}:
        path = os.path.join(code.directory, name)
        if os.path.isfile(path):
            files[f"file:{name}"] = Path(path).read_bytes()
    return files


def main() -> int:
    return run("zmqtriton-routes", [], lambda gateway, _: RoutesService(gateway), is_small=True)


if __name__ == "__main__":
    prctl.run_program(main)
