"""zmqtriton over a repository of the suite, for the replay and for what is kept of our answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.play import Target
from tests.conformance.repositories import Repository
from tests.support.server import Server, choose_instances, is_open
from tests.support.waiting import eventually


@contextmanager
def ours(repository: Repository, directory: Path) -> Iterator[Target]:
    server = Server(directory / "server", options=repository.options)
    repository.write(server.repository)
    for model in server.repository.iterdir():
        choose_instances(model)
    with server:
        # Its process may listen a moment later than that of HTTP.
        eventually(lambda: is_open(server.grpc_port), 30, "gRPC listens")
        ports = server.http_port, server.grpc_port, server.metrics_port
        target = Target(ports, str(server.repository))
        yield target
        target.close()
