"""Parameters for features that are add-ons, where one of these is missing."""

from __future__ import annotations

import pytest

from zmqtriton.config import of_add_ons
from zmqtriton.config.pbtxt import parse_text


@pytest.mark.parametrize(
    ("add_on", "name"),
    [
        (of_add_ons.CANARIES, "canary_version"),
        (of_add_ons.SCALING, "autoscale_max_instances"),
    ],
)
def test_a_model_that_asks_for_a_missing_add_on_is_refused(
    add_on: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zmqtriton.addons._own_declarations", lambda: None)
    parameter = f'parameters {{ key: "{name}" value {{ string_value: "2" }} }}'
    asking, plain = (parse_text(f'name: "m" {text}') for text in (parameter, ""))

    [problem] = of_add_ons.problems(add_on, asking)

    assert f"{name}: the add-on '{add_on}' is not installed" == problem.text
    assert of_add_ons.read(add_on, asking) is None
    assert [] == [*of_add_ons.problems(add_on, plain)]
