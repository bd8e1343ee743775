"""Finds the servers of a fleet that words of the command line name.

dnspython reads DNS SRV records, since the system's resolver does not know them; kubectl lists pods
of Kubernetes.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from zmqtriton.sdk.wire import InvalidArgument, NotFound
from zmqtriton_extras.fleet.servers import nodes
from zmqtriton_extras.fleet.servers.nodes import Node

_ANSWER_WITHIN_S = 10.0
_MAX_BYTES = 16 << 20
_SRV, _KUBECTL, _RAY = "srv:", "kubectl:", "ray:"
_KUBECTL_WITHIN_S = 30.0
#: Ports of a container that names none, by service.
_USUAL_PORTS = {"http": 8000, "grpc": 8001}
_DNS_WITHIN_S = 3.0


class SrvRecord(NamedTuple):
    priority: int
    weight: int
    port: int
    target: str


def look_up(name: str, name_servers: Sequence[tuple[str, int]] = ()) -> list[SrvRecord]:
    """Ask name servers, by default the system's, in turn; the preferred records come first.

    Raises NotFound, and InvalidArgument if none has an answer.
    """
    # only now: the other commands need no DNS
    from dns.exception import DNSException
    from dns.nameserver import Do53Nameserver
    from dns.resolver import NXDOMAIN, Resolver

    if not name.strip("."):
        raise InvalidArgument(f"'{name}' must be a name of DNS")
    try:
        resolver = Resolver(configure=not name_servers)
        if name_servers:
            resolver.nameservers = [Do53Nameserver(host, port) for host, port in name_servers]
        resolver.timeout = _DNS_WITHIN_S
        resolver.lifetime = _DNS_WITHIN_S * len(resolver.nameservers)
        answer = resolver.resolve(f"{name.rstrip('.')}.", "SRV", raise_on_no_answer=False)
    except NXDOMAIN:
        raise NotFound(f"DNS does not know '{name}'; correct --servers") from None
    except DNSException as error:
        raise InvalidArgument(f"no answer about '{name}', does DNS work here? {error}") from None
    return sorted(
        SrvRecord(each.priority, each.weight, each.port, each.target.to_text(omit_final_dot=True))
        for each in answer.rrset or ()
    )


def find_pods(word: str) -> tuple[list[Node], int]:
    """Return the servers of pods that `[NAMESPACE/]SELECTOR` selects, and their expected number.

    That is the number of replicas of the Deployments and StatefulSets with these labels; without
    these, the number of pods. Raises InvalidArgument.
    """
    # Names of labels may have a slash, too, but a domain with a dot before it.
    match = re.fullmatch(r"(?:([a-z0-9-]+)/)?(.+)", word)
    namespace, selector = match.groups() if match is not None else (None, word)
    tool = shutil.which("kubectl")
    if tool is None:
        raise InvalidArgument("there is no kubectl; install it")
    where = ["--namespace", namespace] if namespace else []
    kinds = "pods,deployments,statefulsets"
    command = [tool, "get", kinds, "--selector", selector, *where, "--output", "json"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_KUBECTL_WITHIN_S, check=False)
    except subprocess.TimeoutExpired:
        raise InvalidArgument("kubectl does not answer; is the cluster reachable?") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise InvalidArgument(f"kubectl: {said or f'status {done.returncode}'}")
    try:
        documents = json.loads(done.stdout)["items"]
        of_pods = [each for each in documents if each.get("kind", "Pod") == "Pod"]
        others = [each for each in documents if each.get("kind", "Pod") != "Pod"]
        wished = sum(each["spec"].get("replicas", 1) for each in others)
        return list(nodes_of(of_pods)), wished if others else len(of_pods)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidArgument(
            f"kubectl has printed no list of pods, run it by hand: {error!r}"
        ) from None


def nodes_of(pods: Iterable[Mapping[str, Any]]) -> Iterator[Node]:
    """Return the servers of the pods that run and are not being ended."""
    for pod in pods:
        status = pod.get("status", {})
        address = status.get("podIP")
        if not address or status.get("phase") != "Running":
            continue
        if "deletionTimestamp" in pod.get("metadata", {}):
            continue
        host = f"[{address}]" if ":" in address else address
        containers = pod.get("spec", {}).get("containers", [])
        ports = {
            port.get("name", ""): port["containerPort"]
            for container in containers
            for port in container.get("ports", [])
        }
        has_tls = "https" in ports
        http = ports.get("https" if has_tls else "http", _USUAL_PORTS["http"])
        grpc = ports.get("grpc", _USUAL_PORTS["grpc"])
        tls = frozenset({"http"} if has_tls else ())
        yield Node(f"{host}:{http}", f"{host}:{grpc}", tls=tls)


class Listing(NamedTuple):
    """The servers that were found, ended ones included, and their expected number."""

    nodes: list[Node]
    expected: int


def find_nodes(words: Iterable[str], headers: Mapping[str, str] | None = None) -> list[Node]:
    """Return the servers that the words name. Raises InvalidArgument."""
    return list_servers(words, headers).nodes


def list_servers(words: Iterable[str], headers: Mapping[str, str] | None = None) -> Listing:
    """Return the servers that the words name, including ended ones.

    An engine (Kubernetes, Ray) knows the expected number; other words expect the servers that they
    name. The headers are for URLs of announcements. Raises InvalidArgument.
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
    """Return the nodes that have not ended. Raises InvalidArgument if all have."""
    here = []
    for node in listed:
        if node.is_gone:
            tell(f"left out: {node.http} ({node.state})")
        else:
            here.append(node)
    if not here:
        raise InvalidArgument("there is no server; correct --servers")
    return here


def _read(word: str, headers: Mapping[str, str]) -> Listing:
    if word.startswith(_KUBECTL):
        return Listing(*find_pods(word.removeprefix(_KUBECTL)))
    if word.startswith(_RAY):
        return _read_ray(word.removeprefix(_RAY))
    named = list(_read_list(word, headers))
    return Listing(named, len(nodes.merge(named)))


def _read_ray(address: str) -> Listing:
    try:
        # only now: it is an extra
        from zmqtriton_extras.fleet.serve import register
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
    """Return the servers of a name with SRV records; each gets the further ports in the word."""
    name, comma, further = word.partition(",")
    records = look_up(name)
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
