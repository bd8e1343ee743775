"""The settings of frontends: of HTTP, gRPC and metrics, of guests, announcers and add-ons.

A field is named like its option, but without the service's name in the service's own class.
"""

from __future__ import annotations

import json
from typing import Any, Optional, Tuple, Type, TypeVar

from zmqtriton_floor.logs import LogOptions
from zmqtriton_floor.metrics import MetricsConfig
from zmqtriton_floor.process.named_tuples import NamedTuple
from zmqtriton_floor.settings.broker import OnDemand
from zmqtriton_floor.settings.codec import decode, decode_some
from zmqtriton_floor.settings.offers import Offers
from zmqtriton_floor.settings.stub import Memory
from zmqtriton_floor.settings.tracing import TracingSettings

T = TypeVar("T")


class Restriction(NamedTuple):
    """A group of APIs that answers only to requests with this value in a header."""

    categories: Tuple[str, ...]
    header: str
    value: str


class Tls(NamedTuple):
    """The files of a service that encrypts."""

    server_cert: str
    server_key: str
    #: Signs clients' certificates; "" if they need none.
    root_cert: str = ""


class Access(NamedTuple):
    """Secrets of one protocol; only the processes that check its clients get them."""

    #: A file of bearer tokens; "": clients need none.
    tokens: str = ""
    restrictions: Tuple[Restriction, ...] = ()
    allowed_origins: Tuple[str, ...] = ()
    #: None: connections are plain.
    tls: Optional[Tls] = None


class ServerFacts(NamedTuple):
    """Facts about the server, the same for all of its services."""

    id: str
    server_version: str
    zmqtriton_version: str
    #: Commit that the server was built from; "" if it is not known.
    commit: str
    extensions: Tuple[str, ...]
    started_at: int
    runtime_directory: str
    exit_timeout_s: int
    #: The sockets that were there before the server, by their services.
    passed_sockets: Tuple[str, ...]
    stub_user: Tuple[str, ...]
    #: A directory of the server that outlives it; "": the usual one.
    state_directory: str = ""
    #: The options of each add-on that has some, as JSON.
    add_ons: Tuple[Tuple[str, str], ...] = ()


class Models(NamedTuple):
    control_mode: str
    strict_readiness: bool
    on_demand: OnDemand


class Http(NamedTuple):
    is_served: bool
    address: str
    #: Address that the listening socket is bound to; `address` may be a name.
    bound_address: str
    port: int
    reuse_port: bool
    use_ssl: bool
    header_forward_pattern: str
    #: 0: by the number of cores.
    workers: int
    max_input_size: int
    allowed_hosts: Tuple[str, ...]


class Grpc(NamedTuple):
    """The settings of gRPC; times are in milliseconds."""

    is_served: bool
    address: str
    port: int
    reuse_port: bool
    use_ssl: bool
    header_forward_pattern: str
    #: 0: by the number of cores.
    processes: int
    transport: str
    max_input_size: int
    reflection: bool
    infer_response_compression_level: str
    keepalive_time: int
    keepalive_timeout: int
    keepalive_permit_without_calls: bool
    http2_max_pings_without_data: int
    http2_min_recv_ping_interval_without_data: int
    http2_max_ping_strikes: int
    #: 0: no limit.
    max_connection_age: int
    max_connection_age_grace: int


class MetricsService(NamedTuple):
    is_served: bool
    address: str
    port: int
    interval_ms: float
    allow_cpu_metrics: bool
    allow_gpu_metrics: bool


class AddOnPort(NamedTuple):
    """A port of an add-on; the process that gets its socket serves it."""

    #: Name of its listening socket.
    name: str
    title: str
    #: Reference to what serves it.
    serve: str


class FrontendSettings(NamedTuple):
    """All settings of a frontend; only `access` differs between frontends. Guests have no steps."""

    log: LogOptions
    memory: Memory
    metrics: MetricsConfig
    server: ServerFacts
    models: Models
    http: Http
    grpc: Grpc
    metrics_service: MetricsService
    tracing: TracingSettings = TracingSettings()
    access: Access = Access()
    ports: Tuple[AddOnPort, ...] = ()
    offers: Offers = Offers()

    def option(self, field: str) -> Any:
        """Return the option of an add-on by its field; None if the add-on is not installed."""
        documents = (json.loads(document) for _, document in self.server.add_ons)
        return next((values[field] for values in documents if field in values), None)

    def options_of(self, add_on: str, kind: Type[T]) -> T:
        """Return options of an add-on, which `kind` has as fields with their defaults."""
        return decode_some(kind, dict(self.server.add_ons).get(add_on, "{}"))

    @classmethod
    def decode(cls, document: str) -> FrontendSettings:
        """Read the settings of a Bootstrap. Raises SettingsError."""
        return decode(cls, document)
