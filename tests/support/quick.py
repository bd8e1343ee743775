"""Quick forms of tests with many cases: `make quick` runs some of them, `make test` all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def every(step: int, cases: Iterable[Any]) -> list[Any]:
    """Return the cases for parametrize; all but the first of `step` are slow."""
    return [
        pytest.param(*(case if type(case) is tuple else (case,)), marks=pytest.mark.slow)
        if number % step
        else case
        for number, case in enumerate(cases)
    ]
