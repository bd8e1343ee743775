"""Reasons: each kind is made somewhere, with the values that it says it has."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.floor.reasons import because
from zmqtriton_floor.reasons import ASLEEP, AT_REST, Kind, Reason

_ROOT = Path(__file__).parents[2]
_PRODUCT = ("stub", "frontends", "zmqtriton")
_NO_VALUES = {"cause", "text", "kind"}


def _trees() -> Iterator[tuple[Path, ast.AST]]:
    for room in _PRODUCT:
        for path in (_ROOT / room).rglob("*.py"):
            text = path.read_text()
            if "reasons import" in text and "explaining" not in path.parts:
                yield path, ast.parse(text)


def _kind(node: ast.expr) -> str:
    is_kind = isinstance(node, ast.Attribute) and ast.unparse(node.value) == "Kind"
    return node.attr if is_kind else ""  # type: ignore[attr-defined]


def _made() -> Iterator[tuple[str, Kind, set[str]]]:
    """Return where a reason is made, its kind, and the names of its values."""
    for path, tree in _trees():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            named = {keyword.arg: keyword.value for keyword in node.keywords}
            called = ast.unparse(node.func).rpartition(".")[2]
            is_maker = called in ("of", "because") and bool(node.args)
            kind = _kind(node.args[0]) if is_maker else _kind(named.get("kind", node))
            if kind and None not in named and not isinstance(named.get("values"), ast.Name):
                values = named.keys() - _NO_VALUES if is_maker else _keys(named.get("values"))
                yield f"{path}:{node.lineno}", Kind(kind), {str(name) for name in values}


def _keys(values: ast.expr | None) -> set[str]:
    keys = values.keys if isinstance(values, ast.Dict) else ()
    return {key.value for key in keys if isinstance(key, ast.Constant)}  # type: ignore[misc]


def test_each_reason_is_made_with_the_values_of_its_kind() -> None:
    made = list(_made())

    assert len(made) > 50
    assert [] == [where for where, kind, values in made if values != set(kind.values)]


def test_each_kind_is_made_somewhere() -> None:
    used = {
        kind
        for path, tree in _trees()
        if path.name != "reasons.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.expr) and (kind := _kind(node))
    }

    assert set() == {kind.value for kind in Kind} - used


def test_the_name_of_a_kind_is_what_travels() -> None:
    assert all(kind.name == kind.value == str(kind) for kind in Kind)
    assert "IDLE" in ASLEEP < AT_REST


def test_a_reason_has_the_kinds_of_its_causes_too() -> None:
    reason = Reason.of(Kind.STUB_LOST, "lost", because("killed by SIGKILL"), instance="m_0")

    assert reason.has(Kind.STUB_LOST)
    assert reason.has(Kind.KILLED)
    assert not reason.has(Kind.GIVEN_UP)


@pytest.mark.parametrize("cause", [None, because("exited with status 3")])
def test_a_reason_goes_through_json(cause: Reason | None) -> None:
    reason = Reason.of(Kind.STUB_LOST, "lost", cause, instance="m_0")

    assert reason == Reason.from_document(json.loads(json.dumps(reason.document())))
