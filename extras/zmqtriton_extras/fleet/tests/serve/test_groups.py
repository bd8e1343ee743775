"""The file of a fleet, and the changes between two of them."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.support.needs import ROOT
from zmqtriton_extras.fleet.serve.groups import (
    Change,
    FleetFile,
    Group,
    change_of,
    choose_group,
    parse_fleet,
)
from zmqtriton_floor.errors import InvalidArgument


def group(**fields: Any) -> dict[str, Any]:
    return {"groups": {"vision": {"model_repository": "/models", **fields}}}


def test_a_group_needs_no_more_than_a_repository() -> None:
    plain = {"vision": Group(model_repository=["/models"])}

    assert FleetFile(groups=plain) == parse_fleet(group())
    assert tuple(dict(plain["vision"]).values())[:4] == (["/models"], None, 1, None)


def test_all_fields_are_read() -> None:
    parsed = parse_fleet(
        group(
            model_repository=["/a", "s3://b/c"],
            models=["resnet", "bert"],
            min_replicas=1,
            max_replicas=4,
            cpus=2,
            gpus=0.5,
            memory="1.5Gi",
            options=["--log-info=false"],
            headers={"admin-key": "secret"},
            drain_within_s=5,
        )
    ).groups["vision"]

    repositories, models, *numbers, options, headers, drain_within_s = dict(parsed).values()
    assert repositories == ["/a", "s3://b/c"]
    assert models == {"resnet": 1, "bert": 1}
    assert numbers == [1, 4, 2, 0.5, 3 << 29]
    assert (options, headers, drain_within_s) == (["--log-info=false"], {"admin-key": "secret"}, 5)


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (None, "the file: Input should be a valid dictionary"),
        ({}, "groups: Field required"),
        ({"groups": {}}, "groups: Dictionary should have at least 1 item"),
        ({**group(), "replicas": 2}, "replicas: Extra inputs are not permitted"),
        ({"groups": {"a b": {}}}, "'a b' cannot be the name"),
        ({"groups": {"ingress": {}}}, "'ingress' cannot be the name"),
        ({"groups": {"a": {}}}, "groups.a.model_repository: Field required"),
        (
            group(model_repository=[]),
            "groups.vision.model_repository: Value should have at least 1 item",
        ),
        (group(replica=2), "groups.vision.replica: Extra inputs are not permitted"),
        (group(min_replicas=0), "groups.vision.min_replicas: Input should be greater than 0"),
        (
            group(min_replicas=2, max_replicas=1),
            "groups.vision: max_replicas is below min_replicas",
        ),
        (group(min_replicas=1.5), "groups.vision.min_replicas: Input should be a valid integer"),
        (group(cpus=True), "groups.vision.cpus: Input should be a valid number"),
        (group(cpus=-1), "groups.vision.cpus: Input should be greater than or equal to 0"),
        (group(memory="4 GB"), "groups.vision.memory: '4 GB' is no size"),
        (group(options={"a": 1}), "groups.vision.options: Input should be a valid list"),
        (group(models=3), "groups.vision.models: Input should be a valid dictionary"),
        (group(headers=[]), "groups.vision.headers: Input should be a valid dictionary"),
    ],
)
def test_a_mistake_is_named_with_its_place(document: Any, text: str) -> None:
    with pytest.raises(InvalidArgument) as error:
        parse_fleet(document)

    assert text in error.value.text


def test_what_replaces_servers_says_whether_models_are_named_and_not_which() -> None:
    def vision(document: Any) -> Group:
        return parse_fleet(document).groups["vision"]

    named = vision(group(models=["a"]))
    others = vision(group(models=["b", "c"], max_replicas=3))
    all_models = vision(group())

    assert named.server() == others.server()
    assert named.server() != all_models.server()
    assert vision({"groups": {"vision": named.server()}}).models == {}
    assert vision({"groups": {"vision": all_models.server()}}).models is None


def test_models_are_loaded_if_they_are_new_or_have_another_mark() -> None:
    before = {"same": 1, "new version": 1, "gone": None}
    after = {"same": 1, "new version": 2, "new": None}

    assert Change(load=("new version", "new"), unload=("gone",)) == change_of(before, after)
    assert Change((), ()) == change_of(after, after)
    assert Change(("a",), ()) == change_of({}, {"a": None}), "no mark is one, too"


def test_requests_go_to_the_group_that_names_the_model() -> None:
    groups = {"a": ["x"], "rest": None, "b": ["y"]}

    assert choose_group(groups, "y") == "b"
    assert choose_group(groups, "z") == "rest"
    assert choose_group(groups, "") == "a", "of no model"
    assert choose_group({"a": ["x"]}, "z") is None


def test_the_example_of_the_page_is_a_file() -> None:
    page = (ROOT / "docs" / "fleet.md").read_text("utf-8")
    [text] = re.findall(r"(?s)```yaml\n(.*?)```", page)

    fleet = parse_fleet(yaml.safe_load(text))

    [vision] = fleet.groups.values()
    assert vision.models == {"resnet": 1, "yolo": 1}
    assert (vision.min_replicas, vision.max_replicas, vision.memory) == (2, 6, 16 << 30)
    assert "http_options" in fleet.serve
