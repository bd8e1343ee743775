"""The addresses in announcements, while a machine's network changes."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.supervisor.settings import frontend_settings
from tests.support.waiting import eventually
from zmqtriton_extras.fleet.announcing import announcer
from zmqtriton_extras.fleet.announcing.announcement import Process
from zmqtriton_extras.fleet.announcing.announcer import Courier

GATEWAY: Any = SimpleNamespace(
    settings=frontend_settings(
        "announcer",
        announce_interval_secs=3600,
        http_port=9000,
        allow_grpc=False,
        allow_metrics=False,
    )
)


def test_a_machine_whose_network_comes_up_later_is_announced_by_its_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = iter(["node7", "10.0.0.7"])
    monkeypatch.setattr(announcer, "own_host", lambda place: next(addresses))

    announcements = asyncio.run(_tell_twice(tmp_path / "server.json"))

    assert [each["addresses"]["http"] for each in announcements] == ["node7:9000", "10.0.0.7:9000"]


async def _tell_twice(path: Path) -> list[dict[str, Any]]:
    courier = Courier(str(path), GATEWAY, Process("node7", 4711, 1.0))
    running = asyncio.ensure_future(courier.run())
    announcements = []
    for state in ("starting", "ready"):
        courier.update({"state": state})
        announcements.append(await asyncio.to_thread(eventually, partial(_read, path, state), 30))
    running.cancel()
    await asyncio.wait([running])
    return announcements


def _read(path: Path, state: str) -> dict[str, Any] | None:
    """Return the announcement of a state; None if it has not been made yet."""
    if not path.exists():
        return None
    announcement: dict[str, Any] = json.loads(path.read_text())
    return announcement if announcement["state"] == state else None


@pytest.mark.parametrize("ticks", range(4))
def test_news_do_not_keep_a_courier_that_is_to_end(tmp_path: Path, ticks: int) -> None:
    """The end of the server is news, and ends the courier, in one look at the sockets."""

    async def tell_and_end() -> bool:
        path = tmp_path / "server.json"
        courier = Courier(str(path), GATEWAY, Process("node7", 4711, 1.0))
        running = asyncio.ensure_future(courier.run())
        courier.update({"state": "ready"})
        await asyncio.to_thread(eventually, partial(_read, path, "ready"), 30)
        await asyncio.sleep(0.05)  # it waits for news
        courier.update({"state": "ended"})
        for _ in range(ticks):
            await asyncio.sleep(0)
        running.cancel()
        _, still_runs = await asyncio.wait([running], timeout=60)
        running.cancel()
        return not still_runs

    assert asyncio.run(tell_and_end())
