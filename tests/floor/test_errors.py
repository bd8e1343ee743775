"""Errors, and the texts of their reasons."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.floor.reasons import because
from zmqtriton_floor.errors import closest_match
from zmqtriton_floor.reasons import ASLEEP, AT_REST, Kind, Reason

# ------------------------------------------------------------------------------ errors
# Suggestions for misspelt names.


TYPES = ("BOOL", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BYTES", "BF16")


CONFIGURED = (*(f"TYPE_{name}" for name in TYPES if name != "BYTES"), "TYPE_STRING")


@pytest.mark.parametrize(
    ("word", "names", "expected"),
    [
        ("TYPE_FLOAT", CONFIGURED, "TYPE_FP32"),
        ("type_double", CONFIGURED, "TYPE_FP64"),
        ("TYPE_BYTES", CONFIGURED, "TYPE_STRING"),
        ("TYPE_BFLOAT16", CONFIGURED, "TYPE_BF16"),
        ("FLOAT", TYPES, "FP32"),
        ("float", CONFIGURED, "TYPE_FP32"),
        ("STR", TYPES, "BYTES"),
        ("KIND_CUDA", ("KIND_AUTO", "KIND_GPU", "KIND_CPU"), "KIND_GPU"),
        ("statsu", ("stats", "status"), "status"),
        ("FP3", TYPES, "FP32"),
        ("nothing", TYPES, ""),
    ],
)
def test_a_name_of_others_or_with_letters_in_another_order_is_understood(
    word: str, names: tuple[str, ...], expected: str
) -> None:
    assert expected == closest_match(word, names)


# ----------------------------------------------------------------------------- reasons
# Reasons: each kind is made somewhere, with the values that it says it has.


_ROOT = Path(__file__).parents[2]


_PRODUCT = ("stub", "frontends", "zmqtriton", "standard", "extras")


_NO_VALUES = {"cause", "text", "kind"}


@cache
def _trees() -> list[tuple[Path, ast.AST]]:
    return [
        (path, ast.parse(text))
        for room in _PRODUCT
        for path in (_ROOT / room).rglob("*.py")
        for text in [path.read_text()]
        if "Kind." in text and "explaining" not in path.parts
    ]


def _meanings(node: ast.expr, function: ast.AST) -> list[ast.expr]:
    """Return the expressions that it may stand for: those that a local variable is set to."""
    if isinstance(node, ast.IfExp):
        return [*_meanings(node.body, function), *_meanings(node.orelse, function)]
    if not isinstance(node, ast.Name):
        return [node]
    sources = []
    for each in ast.walk(function):
        if isinstance(each, ast.Assign):
            targets = each.targets
        elif isinstance(each, ast.AnnAssign | ast.NamedExpr):
            targets = [each.target]
        else:
            continue
        is_source = any(isinstance(t, ast.Name) and t.id == node.id for t in targets)
        if is_source and each.value is not None and each.value is not node:
            sources += _meanings(each.value, function)
    return sources


def _kinds(node: ast.expr, function: ast.AST) -> list[str]:
    return [
        each.attr
        for each in _meanings(node, function)
        if isinstance(each, ast.Attribute) and ast.unparse(each.value).rpartition(".")[2] == "Kind"
    ]


def _calls(tree: ast.AST) -> Iterator[tuple[ast.Call, ast.AST]]:
    """Return the calls, each with the function around it."""

    def walk(node: ast.AST, function: ast.AST) -> Iterator[tuple[ast.Call, ast.AST]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Call):
                yield child, function
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from walk(child, child if is_function else function)

    yield from walk(tree, tree)


def _made_in(tree: ast.AST) -> Iterator[tuple[int, Kind, set[str]]]:
    """Return the line where a reason is made, its kind, and the names of its values."""
    for node, function in _calls(tree):
        named = {keyword.arg: keyword.value for keyword in node.keywords}
        called = ast.unparse(node.func).rpartition(".")[2]
        is_maker = called in ("of", "because") and bool(node.args)
        kind_node = node.args[0] if is_maker else named.get("kind")
        if kind_node is None or None in named:
            continue
        for kind in _kinds(kind_node, function):
            if is_maker:
                yield node.lineno, Kind(kind), {str(name) for name in named.keys() - _NO_VALUES}
                continue
            values = named.get("values")
            for meaning in [None] if values is None else _meanings(values, function):
                yield node.lineno, Kind(kind), _keys(meaning)


def _made() -> Iterator[tuple[str, Kind, set[str]]]:
    for path, tree in _trees():
        for line, kind, values in _made_in(tree):
            yield f"{path}:{line}", kind, values


def _keys(values: ast.expr | None) -> set[str]:
    keys = values.keys if isinstance(values, ast.Dict) else ()
    return {key.value for key in keys if isinstance(key, ast.Constant)}  # type: ignore[misc]


def test_a_reason_is_followed_through_local_variables() -> None:
    tree = ast.parse(
        "def f(status):\n"
        "    kind = Kind.CRASHED if status else Kind.KILLED\n"
        "    values = {'signal': 'SIGSEGV'}\n"
        "    Reason.of(kind, 'killed', name='SIGKILL')\n"
        "    return Problem('killed', kind=kind, values=values)\n"
    )

    wrong = [(4, Kind.CRASHED, {"name"}), (4, Kind.KILLED, {"name"})]
    right = [(5, Kind.CRASHED, {"signal"}), (5, Kind.KILLED, {"signal"})]
    assert [*wrong, *right] == list(_made_in(tree))


@pytest.mark.slow
def test_each_reason_is_made_with_the_values_of_its_kind() -> None:
    made = list(_made())

    assert len(made) > 50
    assert [] == [where for where, kind, values in made if values != set(kind.values)]


@pytest.mark.slow
@pytest.mark.addons
def test_each_kind_is_made_somewhere() -> None:
    used = {
        kind
        for path, tree in _trees()
        if path.name != "reasons.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.expr)
        for kind in _kinds(node, ast.Module([], []))
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
