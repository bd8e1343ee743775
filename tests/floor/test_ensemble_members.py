"""The models that a request to one model leads to."""

from __future__ import annotations

from typing import Any

from zmqtriton_floor.routing import inside


def _ensemble(*members: tuple[str, int]) -> dict[str, Any]:
    steps = [{"model_name": name, "model_version": version} for name, version in members]
    return {"ensemble_scheduling": {"step": steps}}


def _names(configs: dict[tuple[str, int], dict[str, Any]], model: str) -> list[str]:
    def find(name: str, version: int) -> dict[str, Any] | None:
        config = configs.get((name, version))
        return None if config is None else {**config, "name": f"{name} {version}"}

    return [config["name"] for config in inside(find, model, -1)]


def test_members_are_found_however_deep_in_the_version_that_is_asked_for() -> None:
    configs = {
        ("outer", -1): _ensemble(("plain", -1), ("inner", 2)),
        ("inner", 2): _ensemble(("plain", 3), ("gone", -1)),
        ("plain", -1): {},
        ("plain", 3): {},
    }

    assert ["outer -1", "plain -1", "inner 2", "plain 3"] == _names(configs, "outer")
    assert [] == _names(configs, "gone")


def test_ensembles_that_name_each_other_are_no_endless_search() -> None:
    configs = {("a", -1): _ensemble(("b", -1)), ("b", -1): _ensemble(("a", -1))}

    assert ["a -1", "b -1"] == _names(configs, "a")
