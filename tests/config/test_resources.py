"""Resources: what instances need, how much there is, and what can never be."""

from __future__ import annotations

from itertools import starmap

import pytest

from zmqtriton.config.document import to_json
from zmqtriton.config.instances import instance_specs
from zmqtriton.config.pbtxt import parse_text
from zmqtriton.config.resources import NO_DEVICE, ResourceNeed, ResourcePool
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.settings.broker import RateLimitResource, RateLimits


def _needs(priority: int = 1, **counts: int) -> ResourceNeed:
    """Of device 0; what begins with `all_` belongs to none."""
    needs = {}
    for name, count in counts.items():
        is_global = name.startswith("all_")
        needs[name.removeprefix("all_"), NO_DEVICE if is_global else 0] = count
    return ResourceNeed(needs, priority)


def _supply(*entries: tuple[str, int, int]) -> ResourcePool:
    return ResourcePool(RateLimits(True, tuple(starmap(RateLimitResource, entries))))


def _demands(groups: str) -> list[str]:
    config = parse_text(f'name: "m" {groups}')
    for group in config.instance_group:
        group.name, group.count = "m", max(1, group.count)
    assert to_json(config)
    return [instance.resource_needs for instance in instance_specs(config)]


def test_instances_need_what_their_group_says() -> None:
    limits = """rate_limiter { priority: 3 resources [ { name: "R" count: 2 },
        { name: "S" global: true count: 1 }, { name: "R" count: 4 }, { name: "T" } ] }"""

    demands = _demands(f"instance_group [ {{ count: 2 kind: KIND_CPU {limits} }} ]")

    expected = ResourceNeed({("R", 0): 4, ("S", NO_DEVICE): 1}, 3)
    assert [expected, expected] == list(map(ResourceNeed.from_json, demands))


def test_on_gpus_each_has_resources_of_its_own() -> None:
    group = 'kind: KIND_GPU gpus: [ 0, 1 ] rate_limiter { resources { name: "R" count: 1 } }'

    demands = _demands(f"instance_group [ {{ {group} }} ]")

    assert [{("R", 0): 1}, {("R", 1): 1}] == [ResourceNeed.from_json(d).amounts for d in demands]


def test_groups_without_a_limiter_need_nothing_and_priority_0_is_1() -> None:
    assert [""] == _demands("instance_group [ { kind: KIND_CPU } ]")

    both = "instance_group [ { kind: KIND_CPU }, { kind: KIND_CPU rate_limiter {} } ]"
    assert [ResourceNeed({}, 1)] * 2 == list(map(ResourceNeed.from_json, _demands(both)))


@pytest.mark.row("E38")
def test_there_is_as_much_as_the_greediest_needs_unless_it_is_said() -> None:
    demands = [_needs(R=1, all_S=2), _needs(R=5)]

    assert {("R", 0): 5, ("S", NO_DEVICE): 2} == _supply().limits(demands)
    # Without a device: so much on each; what has none gets the most that is said anywhere.
    said = _supply(("R", 7, NO_DEVICE), ("S", 3, 1), ("S", 2, 0))
    assert {("R", 0): 7, ("S", NO_DEVICE): 3} == said.limits(demands)


@pytest.mark.row("E38")
@pytest.mark.parametrize(
    ("entry", "limit"),
    [
        (("R", 4, NO_DEVICE), 4),
        (("R", 2, 0), 2),
        (("R", 9, 1), 0),
        (("X", 9, NO_DEVICE), 0),
    ],
)
def test_what_could_never_execute_is_refused(entry: tuple[str, int, int], limit: int) -> None:
    with pytest.raises(InvalidArgument) as refused:
        _supply(entry).check_satisfiable([_needs(R=1), _needs(R=5)])

    assert (
        f'Resource count for "R" is limited to {limit} which will prevent scheduling of one or '
        "more model instances, the minimum required count is 5"
    ) == refused.value.text


@pytest.mark.row("E38")
def test_a_name_is_either_global_or_of_devices() -> None:
    with pytest.raises(InvalidArgument) as refused:
        _supply().check_satisfiable([_needs(R=1), _needs(all_R=1)])

    assert (
        'Resource "R" is present as both global and device-specific resource in the model '
        "configuration."
    ) == refused.value.text
