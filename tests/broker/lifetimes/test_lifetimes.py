"""Whatever the order of messages and deaths, a tensor is what it was, and no block is left."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.broker.lifetimes.explore import Exploration
from tests.broker.lifetimes.scenarios import SCENARIOS, SMALL
from tests.support.scenarios import scenario
from zmqtriton.broker import sending, service
from zmqtriton_frontends.inference import admission
from zmqtriton_frontends.tensors import payload
from zmqtriton_stub import instance
from zmqtriton_stub.memory import tensor_forwarding, tensor_memory

pytestmark = pytest.mark.slow

#: Larger tensors lie in blocks here, and are passed on.
_INLINE_BYTES = 1024
_FEW, _MANY = 3, 100
#: States after which an exploration with deaths ends: there are ten times as many.
_MAX_STATES = 2_000

_names = pytest.mark.parametrize("name", SCENARIOS)
_deaths = pytest.mark.parametrize(
    "deaths", ["none", "of the broker", "of any", "of connections", "of an instance"]
)


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let small tensors lie in blocks, and restore what a world changes in modules."""
    for module in (tensor_memory, payload, admission):
        monkeypatch.setattr(module, "INLINE_BYTES", _INLINE_BYTES)
    monkeypatch.setattr(tensor_forwarding, "PASSED_BYTES", _INLINE_BYTES)
    for changed, name in ((service, "time"), (sending, "time")):
        monkeypatch.setattr(changed, name, vars(changed)[name])
    yield
    instance.take_thread(None)


def _who_dies(name: str, deaths: str) -> list[str]:
    models, guests = [*SCENARIOS[name].models], ["guest"] * bool(SCENARIOS[name].guest)
    return {
        "none": [],
        "of the broker": ["broker"],
        "of any": ["broker", "frontend", *guests, *models],
        "of connections": ["broker", "frontend leaves", *(f"{one} leaves" for one in guests)],
        "of an instance": [f"{model} is ended" for model in models],
    }[deaths]


def _living_on(name: str) -> list[str]:
    guests = ["guest leaves"] * bool(SMALL[name].guest)
    return ["frontend leaves", *guests, *(f"{model} is ended" for model in SMALL[name].models)]


async def _walk(name: str, deaths: str, number: int) -> None:
    exploration = Exploration(SCENARIOS[name], _who_dies(name, deaths))
    for seed in range(number):
        exploration.walk(seed)
    assert number == exploration.ends


async def _explore(name: str, *deaths: str) -> None:
    exploration = Exploration(SMALL[name], deaths, _MAX_STATES).run()
    assert exploration.ends
    assert deaths or exploration.is_complete


@_names
@_deaths
@scenario(asyncio.run)
async def test_orders_by_chance_keep_every_tensor(name: str, deaths: str) -> None:
    await _walk(name, deaths, _FEW)


@pytest.mark.long("broker/lifetimes/test_lifetimes.py::test_orders_by_chance_keep_every_tensor")
@_names
@_deaths
@scenario(asyncio.run)
async def test_many_orders_by_chance_keep_every_tensor(name: str, deaths: str) -> None:
    await _walk(name, deaths, _MANY)


@pytest.mark.parametrize("name", SMALL)
@scenario(asyncio.run)
async def test_each_order_keeps_every_tensor(name: str) -> None:
    await _explore(name)


@pytest.mark.long("broker/lifetimes/test_lifetimes.py::test_each_order_keeps_every_tensor")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("name", "who"),
    [
        (name, who)
        for name in SMALL
        for who in ("broker", "frontend", *SMALL[name].models, *_living_on(name))
    ],
)
@scenario(asyncio.run)
async def test_a_death_at_each_step_of_each_order_keeps_every_tensor(name: str, who: str) -> None:
    await _explore(name, who)
