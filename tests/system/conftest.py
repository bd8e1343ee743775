"""The server that most modules of system tests share with all of their tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import stub_user
from tests.support.server import Server


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """One that models may use, whoever they run as."""
    if stub_user.EVERYWHERE:
        stub_user.open_up(tmp_path)
        tmp_path.chmod(0o777)
    return tmp_path


@pytest.fixture(scope="module")
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A server with the MODELS and OPTIONS of the module, after its prepare(server)."""
    module = request.module
    directory = tmp_path_factory.mktemp(module.__name__.rpartition(".")[2].removeprefix("test_"))
    server = Server(
        directory / "s",
        models=getattr(module, "MODELS", ()),
        options=getattr(module, "OPTIONS", ()),
    )
    if hasattr(module, "prepare"):
        module.prepare(server)
    with server:
        yield server
