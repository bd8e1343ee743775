"""A model whose memory grows with each execution is told before the kernel ends it."""

from __future__ import annotations

import json
import re

import pytest

from tests.standard.ctl.system.commands import ctl
from tests.support.scripted import generate
from tests.support.server import Copy, Server
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(models=[Copy("scripted", name) for name in ("asker", "leaking", "thrifty")]),
]
EXECUTIONS = 400
#: A model asks another one that often, which is quicker than a client.
ASKS = """
    model, key = text_of(request).split()
    script = f"self.kept[{key}] = np.ones(512 << 10, np.uint8); return [reply(len(self.kept))]"
    for _ in range(400):
        kept = answer_of(ask(model, script).exec())
    return [reply(kept)]
"""


@pytest.mark.row("L13")
def test_a_model_that_leaks_is_told_and_one_that_does_not_is_not(server: Server) -> None:
    assert str(EXECUTIONS) == generate(server, "asker", ASKS, "leaking len(self.kept)")
    assert "1" == generate(server, "asker", ASKS, "thrifty 0")

    explained = eventually(lambda: _leaks(server, "explain", "leaking"), 30, "it is told")
    status = json.loads(ctl(server, "status", "leaking", "--json").output)

    assert re.search(r"leaking_0_0 has grown by 5\d\d KiB with each execution, from", explained)
    assert "the parameter max_memory_bytes" in explained
    (growth,) = [row["growth"] for row in status["processes"]]
    assert growth["after"] - growth["before"] > 64 << 20
    assert "leaking: it leaks memory" in ctl(server, "doctor").output
    assert "leaks" not in ctl(server, "explain", "thrifty").output
    eventually(lambda: "leaks memory" in _on_page(server, "leaking"), 30, "the page has it")


def _leaks(server: Server, *words: str) -> str:
    text = ctl(server, *words).output
    return text if "it leaks memory" in text else ""


def _on_page(server: Server, model: str) -> str:
    _, status = server.request_json("/v2/zmqtriton/status")
    (trouble,) = [row["trouble"] for row in status["models"] if row["name"] == model]
    return str(trouble)
