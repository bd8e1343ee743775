"""An instance that hangs while the others of its model serve is told everywhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.standard.ctl.system.commands import ctl
from tests.support.scraping import read_series
from tests.support.scripted import GATE, asked_meanwhile, generate
from tests.support.server import Copy, Server
from tests.support.waiting import eventually

QUICK = "return [reply('x')]"
MORE = "instance_group { count: 2 kind: KIND_CPU }\n"
pytestmark = [
    pytest.mark.system,
    pytest.mark.server(models=[Copy("scripted", "pair", MORE)]),
]


@contextmanager
def hung(server: Server) -> Iterator[None]:
    """Have one instance execute until the end of the context."""
    gate = server.scratch / "gate"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(generate, server, "pair", GATE, str(gate))
        try:
            eventually(lambda: Path(f"{gate}.begun").exists(), 30, "it is executed")
            yield
        finally:
            gate.touch()
        assert "through" == waiting.result()
    for path in (gate, Path(f"{gate}.begun")):
        with suppress(FileNotFoundError):
            path.unlink()


def executing_s(server: Server) -> dict[str, float]:
    """Return the age of the oldest execution of each instance, as the metrics tell it."""
    ages = {}
    for name, value in read_series(server).items():
        if name.startswith("zmqtriton_oldest_execution_seconds"):
            [instance] = re.findall(r'model_instance="([^"]+)"', name)
            ages[instance] = value
    return ages


@pytest.mark.row("L13")
def test_an_instance_that_hangs_is_named_with_its_place_while_another_serves(
    server: Server,
) -> None:
    for _ in range(20):
        generate(server, "pair", QUICK)
    assert "hangs" not in ctl(server, "explain", "pair").output

    with hung(server), asked_meanwhile(server, "pair", QUICK):
        eventually(lambda: max(executing_s(server).values()) > 5, 60, "its age is told")
        ages = executing_s(server)
        explained = ctl(server, "explain").output
        status = json.loads(ctl(server, "status", "pair", "--json").output)
        table = ctl(server, "status", "pair").output

    hanging = max(ages, key=lambda instance: ages[instance])
    assert 3 == len(ages)
    assert re.search(
        rf"pair: instance {hanging} hangs or is slow \(model\.py, line \d+, in execute\): "
        r"one execution lasts for \d+s, where others take [\d.]+ ms",
        explained,
    ), explained
    assert "none completed" not in explained
    rows = {row["instance"]: row["executing_s"] for row in status["processes"]}
    assert rows[hanging] > 5 > min(rows.values())
    assert re.search(rf"stub {hanging}\b.*READY, executing \d+s", table), table
    eventually(lambda: max(executing_s(server).values()) < 1, 30, "it is over")
