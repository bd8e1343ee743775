"""Model directories to write and a process to undo what importing them does."""

from __future__ import annotations

import gc
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.stub.fakes import FakeLink
from tests.stub.running import RunningStub
from tests.stub.supervisor import FakeSupervisor
from tests.support.host_gpu import HostGpu
from zmqtriton_floor import wire
from zmqtriton_stub import instance
from zmqtriton_stub.execution.responses import OpenRequest
from zmqtriton_stub.memory import gpu

Write = Callable[..., Path]


@pytest.fixture
def write_model(tmp_path: Path) -> Write:
    """Writes a model with this code; its directory."""

    def write(code: str, file: str = "1/model.py", **others: str) -> Path:
        path = tmp_path / "m" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("import triton_python_backend_utils as pb_utils\n" + textwrap.dedent(code))
        for name, text in others.items():
            (path.parent / f"{name}.py").write_text(text)
        return tmp_path / "m"

    return write


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[RunningStub]:
    """The process of one, whose supervisor and broker are the test."""
    with RunningStub(tmp_path) as stub:
        yield stub


@pytest.fixture
def withdrawn(monkeypatch: pytest.MonkeyPatch) -> list[wire.Outcome]:
    """The outcomes of answers whose memory was given back."""
    outcomes: list[wire.Outcome] = []
    monkeypatch.setattr(OpenRequest, "withdraw", lambda _, answer: outcomes.append(answer[0]))
    return outcomes


@pytest.fixture
def nothing_imported() -> Iterator[None]:
    """After the test neither its modules nor its entries on sys.path are left."""
    path, modules = sys.path.copy(), set(sys.modules)

    yield

    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]
    instance.current = None


@pytest.fixture
def world() -> Iterator[FakeSupervisor]:
    """Of a stub with large tensors."""
    world = FakeSupervisor()

    yield world

    world.close()


@pytest.fixture
def link(world: FakeSupervisor) -> FakeLink:
    """Of that stub, for what models answer."""
    link = FakeLink()
    link.instance.memory = world.memory
    return link


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[HostGpu]:
    """The driver of GPUs whose memory is files."""
    driver = HostGpu(tmp_path)
    gpu.use(driver)

    yield driver

    gc.collect()
    gpu.use(None)
