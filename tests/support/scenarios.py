"""Tests that are coroutines: each file has a function that plays them, in a world of its own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any


def scenario(
    play: Callable[..., Any], /, **settings: Any
) -> Callable[[Callable[..., Coroutine[Any, Any, Any]]], Callable[..., None]]:
    """Let `play` run the test, and pass its positional-only arguments; pytest passes the others.

    `play` gets the coroutine function, or the coroutine of one without positional-only arguments.
    """

    def make_test(coroutine: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., None]:
        signature = inspect.signature(coroutine)
        fixtures = [
            parameter
            for parameter in signature.parameters.values()
            if parameter.kind is not inspect.Parameter.POSITIONAL_ONLY
        ]
        is_in_world = len(fixtures) < len(signature.parameters)

        @functools.wraps(coroutine)
        def test(**values: Any) -> None:
            bound = functools.partial(coroutine, **values)
            play(bound if is_in_world else bound(), **settings)

        test.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return test

    return make_test
