"""The servers of a fleet, read from addresses and announcements. Does no I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from zmqtriton.sdk.wire import InvalidArgument

#: The format of announcements that is understood here.
_FORMAT = 1
#: States of servers that are gone: the first is announced by the server, the second is concluded
#: from missing announcements.
ENDED, STALE = "ended", "stale"
#: State of a server that clients cannot connect to yet.
STARTING = "starting"
#: Intervals without an announcement after which a server counts as gone.
STALE_AFTER_INTERVALS = 3
_UNLOADED = "unloaded"
_FORM = "HOST:PORT[,grpc=PORT][,agent=PORT]"


class Node(NamedTuple):
    """A server, as far as it is known from its address or announcement."""

    #: HOST:PORT
    http: str
    grpc: str = ""
    agent_check: str = ""
    #: Services (http, grpc) that require TLS.
    tls: frozenset[str] = frozenset()
    #: The models that it should serve; None if that is not known.
    models: tuple[str, ...] | None = None
    #: Models that are ready; None if unknown.
    ready: frozenset[str] | None = None
    #: State as announced; "" without an announcement.
    state: str = ""
    #: Orders announcements of one address: when this run began, and when it said this.
    order: tuple[float, float] = (0.0, 0.0)

    @property
    def name(self) -> str:
        """The server's name for people and proxies, without characters that proxies refuse."""
        return re.sub(r"[^A-Za-z0-9._-]+", "-", self.http).strip("-")

    @property
    def host(self) -> str:
        return self.http.rpartition(":")[0]

    @property
    def url(self) -> str:
        return f"{'https' if 'http' in self.tls else 'http'}://{self.http}"

    @property
    def is_gone(self) -> bool:
        return self.state in (ENDED, STALE)

    def has(self, model: str) -> bool:
        """True if the server should serve the model, as far as is known."""
        return self.models is None or model in self.models


def parse_address(text: str) -> Node:
    """Parse an address with further ports. Raises InvalidArgument."""
    first, *further = text.split(",")
    scheme, _, address = first.rpartition("://")
    if scheme not in ("", "http", "https"):
        raise InvalidArgument(f"'{text}' must begin with http:// or https://")
    host, _ = _split(address.rstrip("/"), text)
    node = Node(address.rstrip("/"), tls=frozenset({"http"} if scheme == "https" else ()))
    for part in further:
        key, _, value = part.partition("=")
        place = value if ":" in value else f"{host}:{value}"
        _split(place, text)
        if key in ("grpc", "grpcs"):
            node = node._replace(grpc=place)
            if key == "grpcs":
                node = node._replace(tls=node.tls | {"grpc"})
        elif key == "agent":
            node = node._replace(agent_check=place)
        else:
            raise InvalidArgument(f"'{text}': '{key}' is not known; write {_FORM}")
    return node


def _split(address: str, text: str) -> tuple[str, int]:
    """Return host and port; an IPv6 address keeps its brackets. Raises InvalidArgument."""
    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    is_plain = re.fullmatch(r"[A-Za-z0-9._:\[\]-]+", address) is not None
    if not host or not port or not is_plain:
        raise InvalidArgument(f"'{text}' is neither there nor an address; write {_FORM}")
    return address.rpartition(":")[0], port


def parse_address_list(text: str) -> list[Node]:
    """Parse addresses, one per line, without comments after #. Raises InvalidArgument."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [parse_address(line) for line in lines if line]


def parse_announcements(text: str) -> list[dict[str, Any]]:
    """Parse announcements: one, a list, or one per line. Raises InvalidArgument."""
    try:
        try:
            document = json.loads(text)
        except ValueError:
            document = [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise InvalidArgument(f"this must be an announcement: {error}") from None
    announcements = document if isinstance(document, list) else [document]
    if not all(isinstance(each, dict) for each in announcements):
        raise InvalidArgument("this must be an announcement: it is not a JSON object")
    return announcements


def node_of(announcement: Mapping[str, Any], age_s: float = 0.0) -> Node | None:
    """Return the announced server; None for an unknown format, or without HTTP.

    `age_s` is the time since it was received. Raises InvalidArgument if it is malformed.
    """
    try:
        return _read(announcement, age_s)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        raise InvalidArgument(f"this must be an announcement: {error!r}") from None


def _read(announcement: Mapping[str, Any], age_s: float) -> Node | None:
    addresses = announcement.get("addresses")
    if announcement.get("format") != _FORMAT or not isinstance(addresses, dict):
        return None
    if not addresses.get("http"):
        return None
    state = str(announcement.get("state", ""))
    interval_s = float(announcement.get("interval_s", 0))
    if state != ENDED and interval_s and age_s > STALE_AFTER_INTERVALS * interval_s:
        state = STALE
    for address in addresses.values():
        _split(str(address), str(address))
    return Node(
        http=addresses["http"],
        grpc=addresses.get("grpc", ""),
        agent_check=addresses.get("agent_check", ""),
        tls=frozenset(announcement.get("tls", ())),
        models=_wanted_models(announcement.get("models", ())),
        ready=frozenset(m["name"] for m in announcement.get("models", ()) if m.get("ready")),
        state=state,
        order=(float(announcement.get("started_s", 0)), float(announcement.get("at_s", 0))),
    )


def _wanted_models(entries: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the models that the server should serve; probes find out whether they are ready."""
    names = tuple(entry["name"] for entry in entries if entry.get("reason") != _UNLOADED)
    if not all(isinstance(name, str) for name in names):
        raise TypeError("the name of a model must be a text")
    return tuple(dict.fromkeys(names))


def merge(nodes: Iterable[Node]) -> list[Node]:
    """Return the newest entry of each address, in the order of their first mention."""
    newest: dict[str, Node] = {}
    for node in nodes:
        newer = newest.get(node.http)
        if newer is None or node.order >= newer.order:
            newest[node.http] = node
    return list(newest.values())
