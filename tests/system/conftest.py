"""The servers that tests share: what tests/session/servers.py finds that they need, running."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.session.servers import NEXT, Needs
from tests.support import stub_user
from tests.support.server import Server
from tests.system.shared_server import SharedServer


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """One that models may use, whoever they run as."""
    if stub_user.EVERYWHERE:
        stub_user.open_up(tmp_path)
        tmp_path.chmod(0o777)
    return tmp_path


class Pool:
    """The last server with options that tests had, running as long as the next ones need it."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._needs: Needs | None = None
        self._server: Server | None = None
        self._running = ExitStack()

    def take(self, needs: Needs) -> Server:
        if self._server is None or self._needs != needs:
            self.end()
            self._needs, self._server = needs, self._start(needs)
        return self._server

    def _start(self, needs: Needs) -> Server:
        directory = self._factory.mktemp("server")
        server = Server(
            directory / "s",
            needs.models,
            options=[option.replace("@DIRECTORY@", str(directory)) for option in needs.options],
            environment=dict(needs.environment),
            frontends=("grpc", "metrics") if needs.frontends is None else needs.frontends,
        )
        if needs.prepare:
            needs.prepare(server)
        return self._running.enter_context(server)

    def end(self) -> None:
        self._server = None
        self._running.close()


@pytest.fixture(scope="session")
def pool(session_mark: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    servers = Pool(tmp_path_factory)
    yield servers
    servers.end()


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest) -> Iterator[Server]:
    """The running server that the mark `server` describes, after its file's prepare(server).

    Where an option has @DIRECTORY@ the server gets a directory of its own. Without options,
    frontends and `own` it is the one that all tests share, with the models loaded.
    """
    needs: Needs = request.param
    if needs.is_of_all:
        with request.getfixturevalue("shared_server").lent(kills=needs.kills) as shared:
            shared.add_models(needs.models)
            if needs.prepare:
                needs.prepare(shared)
            names = sorted(path.name for path in shared.repository.iterdir())
            shared.load(*names if needs.load is None else needs.load)
            yield shared
        return
    servers = request.getfixturevalue("pool")
    yield servers.take(needs)
    if request.config.stash[NEXT] != needs:
        servers.end()


@pytest.fixture(scope="module")
def server(running: Server) -> Server:
    """The module's server; modules and folders wrap it in what holds after each test."""
    return running


@pytest.fixture(scope="session")
def shared_server(
    session_mark: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SharedServer]:
    """One for all tests of this process that load their models themselves."""
    server = SharedServer(tmp_path_factory.mktemp("shared"))
    with server:
        yield server


@pytest.fixture
def shared(shared_server: SharedServer) -> Iterator[SharedServer]:
    """A running server that has no models of the test before and after it."""
    with shared_server.lent():
        yield shared_server
