"""The end of a process that pushes to a collector."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from zmqtriton_extras.otlp_metrics.pusher import Pusher

pytestmark = pytest.mark.slow


class HangingPusher(Pusher):
    """A pusher whose collector never answers."""

    async def push(self, within_s: float) -> float:
        await asyncio.get_running_loop().create_future()
        return 0.0

    def figures(self) -> list[str]:
        return []


def test_the_end_does_not_use_up_its_time_for_a_collector_that_hangs(tmp_path: Path) -> None:
    async def play() -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(tmp_path / "s"))
        gateway: Any = None  # a pusher that is asked nothing needs none
        pusher = HangingPusher("Metrics", gateway, listener, 1.0)
        await pusher.open()
        await asyncio.sleep(0)  # the push begins

        await pusher.end(3600.0)
        while not pusher.end_idle():
            await asyncio.sleep(0.01)

        await pusher.close()

    asyncio.run(asyncio.wait_for(play(), 60))
