"""Server: the in-process API's server, over one that this process starts."""

from __future__ import annotations

import os
import time
from typing import Any

from zmqtriton_extras.tritonserver import metrics
from zmqtriton_extras.tritonserver.enums import (
    InvalidArgumentError,
    MetricFormat,
    ModelControlMode,
    UnavailableError,
    translation,
)
from zmqtriton_extras.tritonserver.model import Model, RunningServer
from zmqtriton_extras.tritonserver.options import Options, server_options

_UNLOADED = (None, "UNAVAILABLE")


class ModelDictionary(dict[Any, Model]):
    """Models by (name, version); a name alone means the newest loaded version."""

    def __init__(self, server: Server, models: list[Model]) -> None:
        super().__init__({(model.name, model.version): model for model in models})
        self._server = server

    def __getitem__(self, key: Any) -> Model:
        if isinstance(key, tuple) and key in self:
            return super().__getitem__(key)
        if any(key == name for name, _ in self):
            return Model(self._server, key)
        raise KeyError(f"Unknown Model: {key}")


class Server:
    """A server, whose models are processes; it ends with this process at the latest."""

    def __init__(self, options: Options | None = None, **kwargs: Any) -> None:
        """Set up with these options, or with the fields of Options."""
        self.options = Options(**kwargs) if options is None else options
        self._server: RunningServer | None = None

    @property
    def running(self) -> RunningServer:
        """The server; raises InvalidArgumentError before the start."""
        if self._server is None:
            raise InvalidArgumentError("Server not started")
        return self._server

    def start(
        self,
        wait_until_ready: bool = False,
        polling_interval: float = 0.1,
        timeout: float | None = None,
    ) -> Server:
        """Start, and load models as the options say.

        Raises InvalidArgumentError for wrong options, InternalError if the server ends at once, and
        UnavailableError if it is not ready in time.
        """
        if self._server is not None:
            raise InvalidArgumentError("Server already started")
        self._server = RunningServer(self.options.log_callback, **server_options(self.options))
        deadline_s = None if timeout is None else time.monotonic() + timeout
        while wait_until_ready and not self.ready():
            if not self.live() or (deadline_s is not None and time.monotonic() > deadline_s):
                raise UnavailableError("Timeout before ready")
            time.sleep(polling_interval)
        return self

    def stop(self) -> None:
        """Answer open requests, unload all models and end the server."""
        self.running.stop()
        self._server = None

    def live(self) -> bool:
        return self.running.connection.live

    def ready(self) -> bool:
        """Return whether all models are ready, or with `strict_readiness=False` the server."""
        return self.running.connection.ready

    def metadata(self) -> dict[str, Any]:
        """Return name, version and extensions."""
        with translation():
            return self.running.connection.metadata()

    def metrics(self, metric_format: MetricFormat = MetricFormat.PROMETHEUS) -> str:
        """Return the metrics of the server, and those that this process has made."""
        with translation():
            page = self.running.connection.metrics() if self.options.metrics else ""
        return page + metrics.page()

    # ------------------------------------------------------------- the models

    def model(self, model_name: str, model_version: int = -1) -> Model:
        """Return a model, which need not exist."""
        return Model(self, model_name, model_version)

    def models(self, exclude_not_ready: bool = False) -> ModelDictionary:
        """Return the models of the repositories, with their states."""
        with translation():
            index = self.running.connection.models(ready=exclude_not_ready)
        models = [
            Model(
                self,
                entry["name"],
                int(entry.get("version") or -1),
                entry.get("state"),
                entry.get("reason"),
            )
            for entry in index
        ]
        return ModelDictionary(self, models)

    def load(self, model_name: str, parameters: dict[str, Any] | None = None) -> Model:
        """Load a model and wait for it; only in mode EXPLICIT.

        The parameters are `config`, a text of JSON, and bytes by names such as `file:1/model.py`.
        """
        config: str | None = None
        files: dict[str, bytes] = {}
        for name, value in (parameters or {}).items():
            if name == "config":
                config = value
            elif name.startswith("file:") and isinstance(value, bytes):
                files[name.removeprefix("file:")] = value
            else:
                raise InvalidArgumentError(f"unrecognized load parameter '{name}'.")
        with translation():
            self.running.connection.load(model_name, config=config, files=files)
        return self.model(model_name)

    def unload(
        self,
        model: str | Model,
        unload_dependents: bool = False,
        wait_until_unloaded: bool = False,
        polling_interval: float = 0.1,
        timeout: float | None = None,
    ) -> None:
        """Unload a model; with `wait_until_unloaded`, wait until its processes have ended."""
        name = model if isinstance(model, str) else model.name
        connection = self.running.connection
        with translation():
            connection.unload(name, unload_dependents=unload_dependents)
        deadline_s = None if timeout is None else time.monotonic() + timeout
        while wait_until_unloaded and not self._is_unloaded(name):
            if deadline_s is not None and time.monotonic() > deadline_s:
                return
            time.sleep(polling_interval)

    def _is_unloaded(self, name: str) -> bool:
        return all(
            model.state in _UNLOADED for model in self.models().values() if model.name == name
        )

    # ------------------------------------------------------- the repositories

    def poll_model_repository(self) -> None:
        """Load changed models of the repositories, and unload removed ones; in mode POLL."""
        running = self.running
        if self.options.model_control_mode is not ModelControlMode.POLL:
            raise UnavailableError("polling is disabled")
        with translation():
            running.connection.control("reload")

    def register_model_repository(
        self, repository_path: str, name_mapping: dict[str, str] | None = None
    ) -> None:
        """Add a directory of models, some of them under other names; in mode EXPLICIT."""
        with translation():
            self.running.connection.control(
                "repository.register",
                path=os.path.abspath(repository_path),
                names=name_mapping or {},
            )

    def unregister_model_repository(self, repository_path: str) -> None:
        """Remove a directory of models, whose loaded models stay; in mode EXPLICIT."""
        with translation():
            self.running.connection.control(
                "repository.unregister", path=os.path.abspath(repository_path)
            )
