"""The comparison with cores of an instance's own: what is loaded, and that it is undone."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any
from unittest.mock import Mock

import pytest

from zmqtriton_extras.bench.command import _with_and_without_cores


def loaded(client: Mock) -> list[Any]:
    """Return the value of CORES in each load; "" for a load of the model's own files."""
    parameters = [call.args[1]["parameters"] for call in client.call.call_args_list]
    configs = [json.loads(one["config"])["parameters"] if one else {} for one in parameters]
    return [config.get("CORES", {}).get("string_value", "") for config in configs]


@pytest.mark.parametrize("has_failed", [False, True])
def test_rows_are_measured_with_and_without_and_the_model_is_as_before(has_failed: bool) -> None:
    client, second = Mock(), ValueError("stopped") if has_failed else [{"requests_per_s": 2}]
    measure = Mock(side_effect=[[{"requests_per_s": 1}], second])

    with pytest.raises(ValueError, match="stopped") if has_failed else nullcontext():
        rows = _with_and_without_cores(client, {"name": "m"}, measure)
        assert [("all", 1), ("auto", 2)] == [(row["cores"], row["requests_per_s"]) for row in rows]

    assert ["all", "auto", ""] == loaded(client)
