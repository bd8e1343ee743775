"""The servers that system tests share: those of a module, and those of all modules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

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


@pytest.fixture(scope="module")
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A server with the MODELS, OPTIONS and FRONTENDS of the module, after its prepare(server).

    Where an option has @DIRECTORY@ it gets a directory of the module's own. A module with
    SHARED = True has the server of all modules, with LOADED of its models loaded; all without that.
    """
    module = request.module
    if getattr(module, "SHARED", False):
        assert not {"OPTIONS", "FRONTENDS"} & vars(module).keys(), "those of all modules"
        kills = getattr(module, "KILLS", False)
        with request.getfixturevalue("shared_server").lent(kills=kills) as shared:
            fill(shared, module)
            names = sorted(path.name for path in shared.repository.iterdir())
            shared.load(*getattr(module, "LOADED", names))
            yield shared
        return
    directory = tmp_path_factory.mktemp(module.__name__.rpartition(".")[2].removeprefix("test_"))
    options = getattr(module, "OPTIONS", ())
    server = Server(
        directory / "s",
        options=[option.replace("@DIRECTORY@", str(directory)) for option in options],
        frontends=getattr(module, "FRONTENDS", ("grpc", "metrics")),
    )
    fill(server, module)
    with server:
        yield server


def fill(server: Server, module: Any) -> None:
    """Put a module's models into the server's repository."""
    for model in getattr(module, "MODELS", ()):
        server.add_model(model)
    if hasattr(module, "prepare"):
        module.prepare(server)


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
