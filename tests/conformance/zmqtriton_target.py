"""zmqtriton over a repository of the suite, for the replay and for what is kept of our answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.play import Target
from tests.conformance.repositories import Repository
from tests.server import Server


@contextmanager
def ours(repository: Repository, directory: Path) -> Iterator[Target]:
    server = Server(directory / "server", options=repository.options)
    repository.write(server.repository)
    with server:
        target = Target(server.http_port, server.grpc_port, str(server.repository))
        yield target
        target.close()
