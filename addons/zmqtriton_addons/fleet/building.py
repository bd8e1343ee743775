"""Puts a fleet together, for the command line and for Python."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from zmqtriton_addons.fleet.engine import Engine
from zmqtriton_addons.fleet.fleet import Fleet
from zmqtriton_addons.fleet.haproxy import HaProxy, Listeners
from zmqtriton_addons.fleet.replicas import parse_replicas
from zmqtriton_addons.fleet.server_options import server_options

_HAPROXY_FILE = "haproxy.cfg"


class Settings(NamedTuple):
    """The settings of a fleet, whatever its engine."""

    model_repositories: Sequence[str]
    #: Further options of the servers, as `--NAME=VALUE`.
    server_options: Sequence[str] = ()
    #: As MODEL=N or MODEL=LEAST-MOST; all other models are on all nodes.
    replicas: Sequence[str] = ()
    #: For announcements and HAProxy's configuration; None for one that goes with the fleet.
    directory: Path | None = None
    #: None for no HAProxy.
    proxy: Listeners | None = Listeners()
    sequence_header: str = "X-Sequence"
    #: Go with requests to the servers.
    headers: Mapping[str, str] = {}


def build_fleet(
    settings: Settings,
    make_engine: Callable[[list[str]], Engine],
    tell: Callable[[str], None] = lambda line: None,
) -> Fleet:
    """Return a fleet whose engine is made for the options of its servers. Raises ZmqTritonError."""
    replicas = dict(map(parse_replicas, settings.replicas))
    engine = make_engine(
        server_options(settings.model_repositories, replicas, settings.server_options)
    )
    temporary = Path(tempfile.gettempdir()) / f"zmqtriton-fleet-{secrets.token_hex(8)}"
    directory = settings.directory or temporary
    proxy = None
    if settings.proxy is not None:
        proxy = HaProxy(directory / _HAPROXY_FILE, settings.proxy, settings.sequence_header)
    return Fleet(
        engine,
        directory,
        is_temporary=settings.directory is None,
        proxy=proxy,
        replicas=replicas,
        headers=settings.headers,
        tell=tell,
    )
