"""A plan whose requests cannot even be sent."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from zmqtriton.ctl.benching.worker import PlanRun


async def _run(plan: dict[str, Any]) -> dict[str, Any]:
    return await PlanRun(plan, asyncio.Event()).run()


def test_what_ends_a_client_is_a_failure() -> None:
    no_port = 99999
    plan: dict[str, Any] = {
        "kind": "http",
        "address": f"127.0.0.1:{no_port}",
        "has_tls": False,
        "request": base64.b64encode(b"").decode(),
        "concurrency": 2,
        "rate": 0.0,
        "seconds": 1.0,
        "timeout_s": 1.0,
    }

    report = asyncio.run(_run(plan))

    ((text, count),) = report["failures"].items()
    assert 2 == count
    assert "port must be 0-65535" in text
