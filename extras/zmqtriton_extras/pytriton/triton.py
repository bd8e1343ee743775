"""A server for the functions of a script: Triton starts one, RemoteTriton uses a running one."""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from zmqtriton.sdk.process import NoServerError, Server
from zmqtriton.sdk.process import connection as connections
from zmqtriton.sdk.wire import Unavailable, ZmqTritonError
from zmqtriton_extras.pytriton.binding import Binding, check_model_name
from zmqtriton_extras.pytriton.client.wire.calls import TritonUrl
from zmqtriton_extras.pytriton.constants import (
    DEFAULT_TRITON_STARTUP_TIMEOUT_S,
    TRITON_ACCESS_HEADER,
)
from zmqtriton_extras.pytriton.decorators import TritonContext
from zmqtriton_extras.pytriton.exceptions import (
    PyTritonInvalidOperationError,
    PyTritonValidationError,
)
from zmqtriton_extras.pytriton.model_config import ModelConfig, Tensor
from zmqtriton_extras.pytriton.proxy.telemetry import (
    build_proxy_tracer_from_triton_config,
    get_telemetry_tracer,
    set_telemetry_tracer,
)
from zmqtriton_extras.pytriton.server_options import (
    DEFAULT_PROTECTED_ENDPOINTS,
    VALID_TRITON_ENDPOINTS,
    TritonConfig,
    TritonSecurityConfig,
    endpoint,
    server_options,
)
from zmqtriton_extras.pytriton.utils.workspace import Workspace


@dataclass
class TritonLifecyclePolicy:
    """When a script's server starts, and whether the script keeps its models."""

    #: False: not before `serve` or `run`.
    launch_triton_on_startup: bool = True
    #: True: models are written to the repository before the server starts, not loaded into it.
    local_model_store: bool = False


DefaultTritonLifecyclePolicy = TritonLifecyclePolicy()
VertextAILifecyclePolicy = TritonLifecyclePolicy(
    launch_triton_on_startup=False, local_model_store=True
)


logger = logging.getLogger("zmqtriton.pytriton.triton")

MONITORING_PERIOD_S = 10.0
_LOOK_S = 0.02
_LOCAL = frozenset({"localhost", "127.0.0.1", "[::1]", "::1", "0.0.0.0"})

_Self = TypeVar("_Self", bound="TritonBase")

__all__ = [
    "DEFAULT_PROTECTED_ENDPOINTS",
    "TRITON_ACCESS_HEADER",
    "VALID_TRITON_ENDPOINTS",
    "DefaultTritonLifecyclePolicy",
    "RemoteTriton",
    "Triton",
    "TritonBase",
    "TritonConfig",
    "TritonLifecyclePolicy",
    "TritonSecurityConfig",
    "VertextAILifecyclePolicy",
]


class TritonBase(ABC):
    """Models that this process binds, and the server that serves them."""

    def __init__(
        self,
        url: str,
        workspace: Workspace | str | Path | None,
        triton_lifecycle_policy: TritonLifecyclePolicy,
        access_token: str | None,
    ) -> None:
        self._url = url
        self._workspace = workspace if isinstance(workspace, Workspace) else Workspace(workspace)
        self._policy = triton_lifecycle_policy
        self._access_token = access_token
        self._context = TritonContext()
        self._bindings: dict[tuple[str, int], Binding] = {}
        #: Held while the state changes; told when the server has stopped.
        self._changed = threading.Condition(threading.RLock())
        self._is_stopped = True
        #: A thread is stopping the server.
        self._is_stopping = False
        #: A callable has said that its process cannot go on.
        self._has_failed_for_good = False
        self._connection: connections.Connection | None = None
        atexit.register(self.stop)

    def bind(
        self,
        model_name: str,
        infer_func: Callable[..., Any] | Sequence[Callable[..., Any]],
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        model_version: int = 1,
        config: ModelConfig | None = None,
        strict: bool = False,
        trace_config: list[str] | None = None,
        *,
        processes: bool = False,
    ) -> None:
        """Serve a function as a model of this name; with several functions, each is an instance.

        Takes effect at once if the server runs, or else when it starts. A serving model of this
        name is replaced without a failed request. With `strict` outputs must have the declared
        names, types and shapes. Each instance is a thread of this process, or with `processes` a
        process that multiprocessing starts. Raises PyTritonValidationError and
        PyTritonInvalidOperationError.
        """
        check_model_name(model_name)
        self._set_up_tracing(trace_config)
        binding = Binding(
            model_name,
            infer_func,
            inputs,
            outputs,
            config or ModelConfig(),
            model_version=model_version,
            strict=strict,
            processes=processes,
        )
        with self._changed:
            connection = self._connection
            if connection is None:
                if binding.key in self._bindings:
                    raise PyTritonInvalidOperationError(
                        "Cannot add model with the same name twice."
                    )
            else:
                self._load(binding, connection)
            self._bindings[binding.key] = binding

    def unbind(self, model_name: str) -> None:
        """Stop serving a model; its running requests are answered."""
        with self._changed:
            keys = [key for key in self._bindings if key[0] == model_name.lower()]
            if not keys:
                raise PyTritonInvalidOperationError(f"There is no model `{model_name}` bound.")
            for key in keys:
                binding = self._bindings.pop(key)
                if self._connection is not None:
                    self._connection.unload(binding.model_name)

    def _load(self, binding: Binding, connection: connections.Connection) -> None:
        try:
            binding.load(connection, self._context, self._stop_soon)
        except ZmqTritonError as error:
            raise PyTritonInvalidOperationError(error.text) from error

    def _set_up_tracing(self, trace_config: list[str] | None) -> None:
        if trace_config is not None and get_telemetry_tracer() is None:
            set_telemetry_tracer(build_proxy_tracer_from_triton_config(trace_config))

    # ----------------------------------------------------------- the server

    @abstractmethod
    def _join(self) -> connections.Connection:
        """Return a connection to the server. Raises TimeoutError without one in time."""

    @abstractmethod
    def _leave(self, connection: connections.Connection | None) -> None:
        """End the connection, and everything else that was started."""

    def connect(self) -> None:
        """Wait for the server and serve the bound models on it. Raises TimeoutError."""
        with self._changed:
            if self._connection is not None:
                return
            connection = self._join()
            try:
                for binding in self._bindings.values():
                    self._load(binding, connection)
            except BaseException:
                self._leave(connection)
                raise
            self._connection = connection
            self._is_stopped = False
        self._say_where()

    def _say_where(self) -> None:
        for binding in self._bindings.values():
            path = f"{self._url}/v2/models/{binding.model_name}"
            logger.info("Infer function available as model: `/v2/models/%s`", binding.model_name)
            logger.info("  Status:         `GET  %s/ready`", path)
            logger.info("  Model config:   `GET  %s/config`", path)
            logger.info("  Inference:      `POST %s/infer`", path)

    def serve(self, monitoring_period_s: float = MONITORING_PERIOD_S) -> None:
        """Serve until the server ends, stop() is called, or Ctrl-C; in a notebook return at once.

        Checks every `monitoring_period_s` seconds whether the server is alive.
        """
        with self._changed:
            # A callable may have ended it before anybody came to watch.
            if not self._has_failed_for_good:
                self.connect()
        if _is_in_event_loop():
            logger.info("Serving in the background; call stop() to end.")
            return
        try:
            with self._changed:
                while self.is_alive():
                    self._changed.wait(monitoring_period_s)
        except KeyboardInterrupt:
            logger.info("SIGINT received, exiting.")
        self.stop()
        with self._changed:
            self._changed.wait_for(lambda: not self._is_stopping)

    def stop(self) -> bool:
        """Stop serving the bound models; False if they were stopped already."""
        with self._changed:
            connection, self._connection = self._connection, None
            if self._is_stopped:
                return False
            self._is_stopped = self._is_stopping = True
        atexit.unregister(self.stop)
        try:
            self._leave(connection)
            self._bindings.clear()
            self._workspace.clean()
        finally:
            with self._changed:
                self._is_stopping = False
                self._changed.notify_all()
        return True

    def _stop_soon(self, reason: str) -> None:
        """Stop from within a callable, in another thread: its own cannot wait for its end."""
        self._has_failed_for_good = True
        threading.Thread(target=self.stop, name="zmqtriton stop", daemon=True).start()

    def is_alive(self) -> bool:
        """True while the server serves the bound models."""
        connection = self._connection
        return connection is not None and connection.live

    @property
    def url(self) -> str:
        """The address of the server for clients on this machine."""
        return self._url

    def is_connected(self) -> bool:
        """True between connect() and stop()."""
        return self._connection is not None

    def __enter__(self: _Self) -> _Self:
        if self._policy.launch_triton_on_startup:
            self.connect()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


class Triton(TritonBase):
    """A server that is started here and ends with this process at the latest."""

    def __init__(
        self,
        *,
        config: TritonConfig | None = None,
        workspace: Workspace | str | Path | None = None,
        triton_lifecycle_policy: TritonLifecyclePolicy | None = None,
        security_config: TritonSecurityConfig | None = None,
    ) -> None:
        """Set up. The environment, and then defaults, set what the configuration leaves open."""
        if triton_lifecycle_policy is None:
            is_on_vertex = config is not None and config.allow_vertex_ai
            triton_lifecycle_policy = (
                VertextAILifecyclePolicy if is_on_vertex else DefaultTritonLifecyclePolicy
            )
        self._config = (config or TritonConfig()).over_environment()
        self._security = security_config or TritonSecurityConfig()
        has_http = self._config.allow_http in (True, None)
        super().__init__(
            endpoint(self._config, "http" if has_http else "grpc"),
            workspace,
            triton_lifecycle_policy,
            self._security.access_token,
        )
        self._server: Server | None = None

    def _set_up_tracing(self, trace_config: list[str] | None) -> None:
        super()._set_up_tracing(trace_config or self._config.trace_config)

    def run(self) -> None:
        """Start the server and serve the bound models on it, in the background."""
        self.connect()

    def url_of(self, protocol: str) -> str:
        """Return the address at which this machine finds `http`, `grpc` or `metrics`."""
        return endpoint(self._config, protocol)

    def get_access_token(self) -> str | None:
        """Return the token that the protected endpoints require."""
        return self._access_token

    def is_alive(self) -> bool:
        return super().is_alive() and self._server is not None and self._server.is_running

    def _join(self) -> connections.Connection:
        token_file = self._workspace.path / "access_token"
        if self._access_token:
            token_file.touch(mode=0o600)
            token_file.write_text(self._access_token)
        options = server_options(
            self._config,
            self._security,
            model_repository=self._workspace.model_store_path,
            token_file=token_file,
        )
        server = Server(**options)
        try:
            server.start(timeout_s=DEFAULT_TRITON_STARTUP_TIMEOUT_S)
        except Unavailable as error:
            raise TimeoutError(f"the server is not ready: {error.text}") from error
        self._server = server
        return server

    def _leave(self, connection: connections.Connection | None) -> None:
        if self._server is not None:
            self._server.stop()


class RemoteTriton(TritonBase):
    """A server on this machine that another program has started."""

    def __init__(
        self,
        url: str,
        workspace: Workspace | str | Path | None = None,
        access_token: str | None = None,
    ) -> None:
        """Set up; the server is the one that listens at this URL."""
        parts = TritonUrl.from_url(url)
        if parts.hostname not in _LOCAL:
            raise PyTritonValidationError(
                f"RemoteTriton needs a server on this machine, but {url} is on another one"
            )
        super().__init__(parts.with_scheme, workspace, DefaultTritonLifecyclePolicy, access_token)
        self._port = str(parts.port)
        self._is_stopped = False

    def is_alive(self) -> bool:
        """True while the server serves the bound models; before connect(), if none is bound."""
        if self._connection is None:
            return not self._is_stopped and not self._bindings
        return super().is_alive()

    def _join(self) -> connections.Connection:
        deadline_s = time.monotonic() + DEFAULT_TRITON_STARTUP_TIMEOUT_S
        while True:
            try:
                return connections.connect(self._port)
            except (NoServerError, Unavailable) as error:
                if time.monotonic() > deadline_s:
                    raise TimeoutError(
                        f"there is no server at {self._url}, start it first: {error}"
                    ) from error
                time.sleep(_LOOK_S)

    def _leave(self, connection: connections.Connection | None) -> None:
        if connection is not None:
            connection.close()


def _is_in_event_loop() -> bool:
    """True in a notebook, whose cells run in an event loop that serve() must not block."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
