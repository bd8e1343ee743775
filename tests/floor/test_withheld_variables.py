"""The hint for a model that asks for a variable which the server withholds."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

import pytest

from zmqtriton_floor.variables import withheld as withheld_variables


@pytest.fixture(autouse=True)
def withheld(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(withheld_variables.VARIABLE, json.dumps({"SECRET": "*", "KIND": "KIND"}))


def _hint(place: Mapping[str, str], name: str) -> str:
    with pytest.raises(KeyError) as caught:
        place[name]
    return withheld_variables.hint(caught.value)


@pytest.mark.parametrize(("name", "option"), [("SECRET", "*"), ("KIND", "KIND")])
def test_the_option_that_passes_it_is_named(name: str, option: str) -> None:
    assert f"--model-env={option} passes it" in _hint(os.environ, name)


def test_nothing_is_said_of_other_variables_and_other_dictionaries() -> None:
    assert "" == _hint(os.environ, "ELSE")
    assert "" == _hint({}, "SECRET")
    assert "" == withheld_variables.hint(KeyError("SECRET"))
    assert "" == withheld_variables.hint(ValueError("SECRET"))


def test_nothing_is_said_where_nothing_is_withheld(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(withheld_variables.VARIABLE)

    assert "" == _hint(os.environ, "SECRET")
