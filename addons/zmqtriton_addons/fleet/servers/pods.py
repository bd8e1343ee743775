"""Pods of Kubernetes with a server, as kubectl knows them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from zmqtriton_addons.fleet.servers.nodes import Node
from zmqtriton_floor.errors import InvalidArgument

_ANSWER_WITHIN_S = 30.0
#: By service, the port of a container that names none.
_USUAL_PORTS = {"http": 8000, "grpc": 8001}


def find_pods(word: str) -> tuple[list[Node], int]:
    """Return the servers of the pods that `[NAMESPACE/]SELECTOR` selects, and how many it wants.

    Those are the replicas of the Deployments and StatefulSets with these labels; without any, the
    pods themselves. Raises InvalidArgument.
    """
    # Names of labels may have a slash, too, but a domain with a dot before it.
    match = re.fullmatch(r"(?:([a-z0-9-]+)/)?(.+)", word)
    namespace, selector = match.groups() if match is not None else (None, word)
    tool = shutil.which("kubectl")
    if tool is None:
        raise InvalidArgument("there is no kubectl")
    where = ["--namespace", namespace] if namespace else []
    kinds = "pods,deployments,statefulsets"
    command = [tool, "get", kinds, "--selector", selector, *where, "--output", "json"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_ANSWER_WITHIN_S, check=False)
    except subprocess.TimeoutExpired:
        raise InvalidArgument("kubectl does not answer") from None
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
        raise InvalidArgument(f"kubectl has printed no list of pods: {error!r}") from None


def nodes_of(pods: Iterable[Mapping[str, Any]]) -> Iterator[Node]:
    """Return the servers of those pods that run, and are not being ended."""
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
