"""Documents as commands print them."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from zmqtriton_standard.ctl.output import print_document


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def test_numbers_that_json_does_not_have_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    outputs = [{"data": [1.5, math.nan, [math.inf, -math.inf]]}]

    print_document("json", {"outputs": outputs, "shape": (2,)})

    document = json.loads(capsys.readouterr().out, parse_constant=_refuse)
    assert {"outputs": [{"data": [1.5, None, [None, None]]}], "shape": [2]} == document
