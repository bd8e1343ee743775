from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.frontends.http_api.fakes import FakeGateway
from zmqtriton_floor import staging
from zmqtriton_floor.errors import InternalError
from zmqtriton_frontends.gateway.loads import load

FILES = {"file:1/model.py": b"x"}


def test_a_client_that_leaves_while_its_files_are_written_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway: Any = FakeGateway(runtime_directory=str(tmp_path))
    begun, may_go_on = threading.Event(), threading.Event()
    stage = staging.stage

    def slow(*arguments: Any) -> str:
        name = stage(*arguments)
        begun.set()
        assert may_go_on.wait(30)
        return name

    async def leave() -> None:
        asking = asyncio.ensure_future(load(gateway, "m", {"config": "{}"}, FILES))
        assert await asyncio.to_thread(begun.wait, 30)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert 1 == len(list((tmp_path / "files").iterdir()))
        may_go_on.set()
        await asyncio.wait_for(are_gone(), 30)

    async def are_gone() -> None:
        while list((tmp_path / "files").iterdir()):
            await asyncio.sleep(0.01)

    monkeypatch.setattr(staging, "stage", slow)
    asyncio.run(leave())

    assert [] == gateway.calls


def test_files_that_cannot_be_written_are_no_call(tmp_path: Path) -> None:
    (tmp_path / "files").write_bytes(b"")
    gateway: Any = FakeGateway(runtime_directory=str(tmp_path))

    with pytest.raises(InternalError, match="cannot keep the files of the load"):
        asyncio.run(load(gateway, "m", {"config": "{}"}, FILES))

    assert [] == gateway.calls


def test_a_load_without_files_is_one_call() -> None:
    gateway: Any = FakeGateway(runtime_directory="/nowhere")

    asyncio.run(load(gateway, "m", {"config": "{}"}, {}, wait=True))

    arguments = {"model": "m", "parameters": {"config": "{}"}, "wait": True}
    assert [("load", arguments)] == gateway.calls
