"""The servers of a fleet: where words of the command line lead to."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from zmqtriton_addons.fleet.servers import nodes, pods, srv_records
from zmqtriton_addons.fleet.servers.nodes import Node
from zmqtriton_floor.errors import InvalidArgument, NotFound

_ANSWER_WITHIN_S = 10.0
_MAX_BYTES = 16 << 20
_SRV, _KUBECTL, _RAY = "srv:", "kubectl:", "ray:"


class Listing(NamedTuple):
    """The servers that were found, gone or not, and how many there should be."""

    nodes: list[Node]
    expected: int


def find_nodes(words: Iterable[str], headers: Mapping[str, str] | None = None) -> list[Node]:
    """Return the servers that the words lead to. Raises InvalidArgument."""
    return list_servers(words, headers).nodes


def list_servers(words: Iterable[str], headers: Mapping[str, str] | None = None) -> Listing:
    """Return the servers that the words lead to, also those that are gone.

    An engine knows how many there should be; all others mean those that they name. The headers are
    for URLs of announcements. Raises InvalidArgument.
    """
    listed: list[Node] = []
    expected = 0
    for word in words:
        try:
            listing = _read(word, headers or {})
        except OSError as error:
            reason = getattr(error, "reason", None) or error.strerror or error
            raise InvalidArgument(f"{word}: {reason}") from None
        except (InvalidArgument, NotFound) as error:
            hint = "" if word in error.text else f"{word}: "
            raise InvalidArgument(f"{hint}{error.text}") from None
        listed += listing.nodes
        expected += listing.expected
    return Listing(nodes.merge(listed), expected)


def present(listed: Iterable[Node], tell: Callable[[str], None]) -> list[Node]:
    """Return those that have not ended, and tell of others. Raises InvalidArgument without any."""
    here = []
    for node in listed:
        if node.is_gone:
            tell(f"left out: {node.http} ({node.state})")
        else:
            here.append(node)
    if not here:
        raise InvalidArgument("there is no server")
    return here


def _read(word: str, headers: Mapping[str, str]) -> Listing:
    if word.startswith(_KUBECTL):
        return Listing(*pods.find_pods(word.removeprefix(_KUBECTL)))
    if word.startswith(_RAY):
        return _read_ray(word.removeprefix(_RAY))
    named = list(_read_list(word, headers))
    return Listing(named, len(nodes.merge(named)))


def _read_ray(address: str) -> Listing:
    try:
        # only now: it is an extra
        from zmqtriton_addons.fleet.serve import register
    except ImportError:
        raise InvalidArgument("Ray is not installed here: pip install 'ray[serve]'") from None
    announcements, expected = register.find(address)
    return Listing(list(filter(None, map(nodes.node_of, announcements))), expected)


def _read_list(word: str, headers: Mapping[str, str]) -> Iterable[Node]:
    if word.startswith(_SRV):
        return _read_srv(word.removeprefix(_SRV))
    if "://" in word and urlsplit(word).path not in ("", "/"):
        return _announced(_get(word, headers))
    path = Path(word)
    if path.is_dir():
        return list(_read_directory(path))
    if path.is_file() or ("/" in word and ":" not in word):
        return _read_file(path)
    return [nodes.parse_address(word)]


def _read_srv(word: str) -> list[Node]:
    """Return the servers of a name with SRV records; further ports are those of all of them."""
    name, comma, further = word.partition(",")
    records = srv_records.look_up(name)
    return [nodes.parse_address(f"{r.target}:{r.port}{comma}{further}") for r in records]


def _read_directory(path: Path) -> Iterator[Node]:
    for each in sorted(path.glob("*.json")):
        with suppress(FileNotFoundError):  # its server has ended since
            yield from _read_file(each)


def _read_file(path: Path) -> Iterable[Node]:
    with path.open(encoding="utf-8", errors="replace") as file:
        text = file.read(_MAX_BYTES)
    if not text.lstrip().startswith(("{", "[{")):
        return nodes.parse_address_list(text)
    return _announced(text, max(0.0, time.time() - path.stat().st_mtime))


def _announced(text: str, age_s: float = 0.0) -> Iterator[Node]:
    for announcement in nodes.parse_announcements(text):
        node = nodes.node_of(announcement, age_s)
        if node is not None:
            yield node


def _get(url: str, headers: Mapping[str, str]) -> str:
    request = urllib.request.Request(url, headers=dict(headers))
    try:
        with urllib.request.urlopen(request, timeout=_ANSWER_WITHIN_S) as answer:
            content: bytes = answer.read(_MAX_BYTES)
    except urllib.error.HTTPError as error:
        with error:  # the connection is its own
            raise InvalidArgument(str(error.reason)) from None
    return content.decode("utf-8", "replace")
