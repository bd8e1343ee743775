"""Many loads and unloads of several models at once: the models alone are left."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.server import Server
from tests.support.waiting import eventually

MODELS = ["identity_fp32", "add_sub", "string_upper"]
pytestmark = [
    pytest.mark.system,
    pytest.mark.server(models=MODELS),
]


def test_a_flood_of_loads_and_unloads_leaves_the_models_alone(server: Server) -> None:
    chance = random.Random(7)
    calls = [(chance.choice(MODELS), chance.choice(["load", "unload"])) for _ in range(60)]

    def ask(what: tuple[str, str]) -> int:
        model, verb = what
        return server.request_json(f"/v2/repository/models/{model}/{verb}", {})[0]

    with ThreadPoolExecutor(20) as threads:
        statuses = set(threads.map(ask, calls))
        final = set(threads.map(ask, [(model, "load") for model in MODELS]))

    # A load that another request has overtaken may be refused, and nothing worse.
    assert statuses <= {200, 400, 503}, statuses
    assert {200} == final
    eventually(lambda: len(server.pids()["stub"]) == len(MODELS), 30, "one stub for each")
    assert [200] * len(MODELS) == [server.status(f"/v2/models/{name}/ready") for name in MODELS]
    assert "Traceback" not in server.log_text()
