"""The file of a fleet, and the changes between two of them."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT
from zmqtriton_addons.fleet.serve.groups import (
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
    assert FleetFile("zmqtriton", (Group("vision", ("/models",)),)) == parse_fleet(group())


def test_all_fields_are_read() -> None:
    [parsed] = parse_fleet(
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
    ).groups

    assert ("/a", "s3://b/c") == parsed.model_repository
    assert {"resnet": 1, "bert": 1} == parsed.models
    assert (1, 4, 2, 0.5, 3 << 29) == parsed[3:8]
    assert (("--log-info=false",), {"admin-key": "secret"}, 5) == parsed[8:]


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (None, "the file: this is no mapping"),
        ({}, "groups: this is no mapping"),
        ({"groups": {}}, "groups: the file has no group"),
        ({**group(), "replicas": 2}, "the file: 'replicas' is not known"),
        ({"groups": {"a b": {}}}, "'a b' cannot be the name"),
        ({"groups": {"ingress": {}}}, "'ingress' cannot be the name"),
        ({"groups": {"a": {}}}, "groups.a.model_repository is missing"),
        (group(replica=2), "groups.vision: 'replica' is not known; known are cpus, drain_within_s"),
        (group(min_replicas=0), "min_replicas is 1 or more"),
        (group(min_replicas=2, max_replicas=1), "max_replicas not below it"),
        (group(min_replicas=1.5), "groups.vision.min_replicas: '1.5' is no whole number"),
        (group(cpus=True), "groups.vision.cpus: 'True' is no number"),
        (group(cpus=-1), "groups.vision.cpus: '-1' is no number"),
        (group(memory="4 GB"), "groups.vision.memory: '4 GB' is no size"),
        (group(options={"a": 1}), "groups.vision.options: this is neither"),
        (group(models=[1]), "groups.vision.models: this is neither"),
        (group(headers=[]), "groups.vision.headers: this is no mapping"),
    ],
)
def test_a_mistake_is_named_with_its_place(document: Any, text: str) -> None:
    with pytest.raises(InvalidArgument) as error:
        parse_fleet(document)

    assert text in error.value.text


def test_what_replaces_servers_says_whether_models_are_named_and_not_which() -> None:
    [named] = parse_fleet(group(models=["a"])).groups
    [others] = parse_fleet(group(models=["b", "c"], max_replicas=3)).groups
    [all_models] = parse_fleet(group()).groups

    assert named.server() == others.server()
    assert named.server() != all_models.server()
    assert parse_fleet({"groups": {"vision": named.server()}}).groups[0].models == {}
    assert parse_fleet({"groups": {"vision": all_models.server()}}).groups[0].models is None


def test_models_are_loaded_if_they_are_new_or_have_another_mark() -> None:
    before = {"same": 1, "new version": 1, "gone": None}
    after = {"same": 1, "new version": 2, "new": None}

    assert Change(load=("new version", "new"), unload=("gone",)) == change_of(before, after)
    assert Change((), ()) == change_of(after, after)
    assert Change(("a",), ()) == change_of({}, {"a": None}), "no mark is one, too"


def test_requests_go_to_the_group_that_names_the_model() -> None:
    groups = {"a": ["x"], "rest": None, "b": ["y"]}

    assert "b" == choose_group(groups, "y")
    assert "rest" == choose_group(groups, "z")
    assert "a" == choose_group(groups, ""), "of no model"
    assert choose_group({"a": ["x"]}, "z") is None


def test_the_example_of_the_page_is_a_file() -> None:
    page = (ROOT / "docs" / "fleet.md").read_text("utf-8")
    [text] = re.findall(r"(?s)```yaml\n(.*?)```", page)

    fleet = parse_fleet(yaml.safe_load(text))

    [vision] = fleet.groups
    assert ("vision", {"resnet": 1, "yolo": 1}, 2, 6) == (vision.name, *vision[2:5])
    assert "http_options" in fleet.serve
