"""The mark `server`: what a test needs of the server that the fixture `server` gives it.

Tests that need the same have one running server one after the other; pytest puts those of a file
together. tests/system/conftest.py starts the servers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.server import Copy, Written

#: What the next test of this process needs, or None.
NEXT = pytest.StashKey["Needs | None"]()


class Needs(NamedTuple):
    """The needs of a test; equal ones share a server."""

    models: tuple[str | Path | Copy | Written, ...] = ()
    options: tuple[str, ...] = ()
    frontends: tuple[str, ...] | None = None
    environment: tuple[tuple[str, str], ...] = ()
    #: The models to load, if not all.
    load: tuple[str, ...] | None = None
    #: Whether the tests kill processes of the server that all tests share.
    kills: bool = False
    #: The test or the file that has the server for itself.
    owner: str = ""
    prepare: Callable[[Any], None] | None = None

    @property
    def is_of_all(self) -> bool:
        """True if the server without options that all tests share is enough."""
        return not (self.owner or self.options or self.environment) and self.frontends is None


def _needs(
    models: Sequence[str | Path | Copy | Written] = (),
    options: Sequence[str] = (),
    frontends: Sequence[str] | None = None,
    environment: Mapping[str, str] | None = None,
    load: Sequence[str] | None = None,
    **more: Any,
) -> Needs:
    return Needs(
        tuple(models),
        tuple(options),
        None if frontends is None else tuple(frontends),
        tuple((environment or {}).items()),
        None if load is None else tuple(load),
        **more,
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marks = [*metafunc.definition.iter_markers_with_node("server")]
    if not marks or "running" not in metafunc.fixturenames:
        return
    (node, mark), words = marks[0], dict(marks[0][1].kwargs)
    owner = node.nodeid if words.pop("own", False) else ""
    prepare = getattr(metafunc.module, "prepare", None) if node is not metafunc.definition else None
    needs = _needs(*mark.args, **words, owner=owner, prepare=prepare)
    metafunc.parametrize("running", [needs], ids=[pytest.HIDDEN_PARAM], indirect=True)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    spec = getattr(nextitem, "callspec", None)
    item.config.stash[NEXT] = spec.params.get("running") if spec else None
