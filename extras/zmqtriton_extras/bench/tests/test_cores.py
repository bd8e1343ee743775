"""The comparison with cores of an instance's own: what is loaded, and that it is undone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from zmqtriton_extras.bench.command import _with_and_without_cores


class Loads:
    """Stands for the client of a server; keeps the value of CORES in each load."""

    def __init__(self) -> None:
        self.cores: list[str] = []

    def call(self, verb: str, arguments: dict[str, Any]) -> None:
        assert ("load", "m") == (verb, arguments["model"])
        config = json.loads(arguments["parameters"].get("config", "{}"))
        self.cores.append(config.get("parameters", {}).get("CORES", {}).get("string_value", ""))


def test_rows_are_measured_with_and_without_and_the_model_is_as_before() -> None:
    loads: Any = Loads()

    rows = _with_and_without_cores(loads, {"name": "m"}, lambda: [{"requests_per_s": 1}])

    assert ["all", "auto", ""] == loads.cores
    assert [("all", 1), ("auto", 1)] == [(row["cores"], row["requests_per_s"]) for row in rows]


def test_the_model_is_as_before_if_a_measurement_fails() -> None:
    loads: Any = Loads()

    def fail() -> list[dict[str, Any]]:
        raise ValueError("stopped")

    with pytest.raises(ValueError, match="stopped"):
        _with_and_without_cores(loads, {"name": "m"}, fail)
    assert ["all", ""] == loads.cores
