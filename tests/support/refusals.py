"""The texts of the errors with which calls are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def refusal(kind: type[Exception], call: Callable[..., Any], *arguments: Any, **named: Any) -> str:
    """Return the text of the error of this kind that a call with these arguments raises."""
    with pytest.raises(kind) as caught:
        call(*arguments, **named)
    return str(caught.value)
