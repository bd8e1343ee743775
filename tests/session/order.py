"""The order of the tests: what takes long first, or what `--order-seed` decides.

A failure under a seed is repeated by the same seed with fewer files or tests: what is left out
does not change the order of the others.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path

import pytest

from tests.session import tiers
from tests.support.needs import name_of


def pytest_report_header(config: pytest.Config) -> str | None:
    seed = config.getoption("--order-seed")
    return f"order seed: {seed}" if seed else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort before pytest puts those together that share the value of a fixture."""
    if seed := config.getoption("--order-seed"):
        items.sort(
            key=lambda item: (_draw(seed, item.nodeid.partition("::")[0]), _draw(seed, item.nodeid))
        )
    elif "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: _turn(item.path))


@cache
def _turn(path: Path) -> tuple[int, str]:
    """Return what sorts files alike in all processes, whichever of them each has begun with.

    Several processes begin with what takes long or waits for long: of what is short they end at
    nearly the same time.
    """
    marks = tiers.file_marks(path)
    turn = 0 if tiers.LONG in marks else 1 if "system" in marks else 2 if tiers.is_slow(path) else 3
    return turn, name_of(path)


def _draw(seed: str, name: str) -> bytes:
    return hashlib.blake2b(f"{seed} {name}".encode(), digest_size=8).digest()
