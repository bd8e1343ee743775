"""Pods that a kubectl names which the test plays: there is no cluster here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from zmqtriton_extras.fleet.servers.nodes import Node
from zmqtriton_extras.fleet.servers.sources import find_nodes, list_servers, nodes_of
from zmqtriton_floor.errors import InvalidArgument


def pod(address: str, *ports: dict[str, Any], phase: str = "Running", **about: Any) -> Any:
    containers = [{"name": "sidecar"}, {"name": "server", "ports": list(ports)}]
    status = {"phase": phase, "podIP": address}
    return {"metadata": about, "spec": {"containers": containers}, "status": status}


def port(name: str, number: int) -> dict[str, Any]:
    return {"name": name, "containerPort": number}


PODS = {
    "items": [
        pod("10.1.0.1"),
        pod("10.1.0.2", port("http", 9000), port("grpc", 9001)),
        pod("fd00::3", port("https", 8443)),
        pod("10.1.0.4", phase="Pending"),
        pod("10.1.0.5", deletionTimestamp="2026-01-01T00:00:00Z"),
        {"metadata": {}, "status": {"phase": "Pending"}},
    ]
}
SERVERS = [
    Node("10.1.0.1:8000", "10.1.0.1:8001"),
    Node("10.1.0.2:9000", "10.1.0.2:9001"),
    Node("[fd00::3]:8443", "[fd00::3]:8001", tls=frozenset({"http"})),
]


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory whose kubectl comes first."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def play(directory: Path, output: str, status: int = 0) -> None:
    (directory / "output").write_text(output)
    script = directory / "kubectl"
    script.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > {directory}/words\n'
        f"cat {directory}/output {'>&2' if status else ''}\nexit {status}\n"
    )
    script.chmod(0o755)


def test_the_servers_are_the_pods_that_run() -> None:
    assert list(nodes_of(PODS["items"])) == SERVERS


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("app=zmqtriton", ["--selector", "app=zmqtriton"]),
        ("ml/app=a,tier=b", ["--selector", "app=a,tier=b", "--namespace", "ml"]),
        ("app.example/name=a", ["--selector", "app.example/name=a"]),
        ("ml/app.example/name=a", ["--selector", "app.example/name=a", "--namespace", "ml"]),
    ],
)
def test_kubectl_is_asked_for_the_pods_of_a_selector(
    directory: Path, word: str, words: list[str]
) -> None:
    play(directory, json.dumps(PODS))

    nodes = find_nodes([f"kubectl:{word}"])

    assert nodes == SERVERS
    expected = ["get", "pods,deployments,statefulsets", *words, "--output", "json"]
    assert expected == (directory / "words").read_text().split()


def test_there_should_be_as_many_as_the_deployments_want(directory: Path) -> None:
    play(directory, json.dumps(PODS))
    assert len(PODS["items"]) == list_servers(["kubectl:app=a"]).expected

    owner = {"kind": "Deployment", "spec": {"replicas": 9}}
    own = [{"kind": "Pod", **each} for each in PODS["items"]]
    play(directory, json.dumps({"items": [*own, owner, {"kind": "StatefulSet", "spec": {}}]}))
    listing = list_servers(["kubectl:app=a", "10.0.0.1:8000"])

    assert listing.expected == 9 + 1 + 1
    assert [*SERVERS, Node("10.0.0.1:8000")] == listing.nodes


def test_what_kubectl_complains_of_is_said(directory: Path) -> None:
    play(directory, "The connection to the server was refused", 1)
    with pytest.raises(InvalidArgument, match="kubectl: The connection to the server"):
        find_nodes(["kubectl:app=a"])
    play(directory, "[]")
    with pytest.raises(InvalidArgument, match="no list of pods"):
        find_nodes(["kubectl:app=a"])
