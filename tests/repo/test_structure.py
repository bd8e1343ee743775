"""The rules on import lists and import cycles, on slots, named tuples and stars.

Each exception is listed with its reason and today's number, so that it can only shrink.
"""

from __future__ import annotations

import ast
import re
from collections import Counter

from tests.repo.sources import Source, import_graph, imported, sources, within
from tests.support.needs import ROOT

MODULES_IMPORTED = 20
#: Modules that import more of ours, each because it puts the parts of a process together. A rise
#: needs a decision: docs/decisions.md has these numbers, too, under the heading of D137.
COMPOSITION_ROOTS = {
    "zmqtriton.broker.core": 23,
    "zmqtriton.supervisor.core": 30,
    "zmqtriton.reading.model_reading": 22,
    "zmqtriton.supervisor.service": 28,
}


def test_modules_import_few_others() -> None:
    """But a package its own modules, and the sdk those whose names it has for others."""
    counts = {
        name: sum(not within(each, (name,)) for each in used)
        for name, used in import_graph().items()
        if not within(name, ("zmqtriton.sdk",))
    }

    assert COMPOSITION_ROOTS == {
        name: count for name, count in counts.items() if count > MODULES_IMPORTED
    }


def test_the_ceilings_of_composition_roots_stand_in_a_decision() -> None:
    text = (ROOT / "docs/decisions.md").read_text("utf-8")
    _, _, decision = text.partition("### D137. ")
    decision, _, _ = decision.partition("\n### ")

    assert [] == [
        f"D137 does not say that {module} imports {count} modules"
        for module, count in COMPOSITION_ROOTS.items()
        if f"| `{module.removeprefix('zmqtriton.')}` | {count} |" not in decision
    ]


def _circles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """The strongly connected components of more than one module."""
    reachable: dict[str, set[str]] = {}
    for start in graph:
        seen: set[str] = set()
        waiting = [*graph[start]]
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting += graph[name]
        reachable[start] = seen
    return {
        frozenset(other for other in reachable[name] if name in reachable[other])
        for name in graph
        if name in reachable[name]
    }


def test_imports_form_no_circle_not_even_for_annotations() -> None:
    assert [] == sorted(map(sorted, _circles(import_graph())))


def test_an_import_for_annotations_counts() -> None:
    text = "if TYPE_CHECKING:\n    from zmqtriton.broker.core import BrokerCore"
    source = Source("zmqtriton.broker.outbox", ROOT / "outbox.py", ast.parse(text))

    assert [(2, "zmqtriton.broker.core.BrokerCore")] == list(imported(source))


def test_a_circle_is_found() -> None:
    assert {frozenset("abc")} == _circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})


def _bases(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases}


#: Names that users know from Triton, where each of the two has that name.
TWICE = {"InferenceRequest", "InferenceResponse", "Tensor"}


def test_a_name_of_a_public_class_of_the_core_is_that_of_one_class() -> None:
    names = Counter(
        each.name
        for source in sources()
        if source.path.relative_to(ROOT).parts[0] in {"zmqtriton", "stub", "frontends"}
        for each in source.tree.body
        if isinstance(each, ast.ClassDef) and not each.name.startswith("_")
    )

    assert TWICE == {name for name, count in names.items() if count > 1}


def test_slots_have_different_names() -> None:
    """Python takes a name twice, and keeps a place for each."""
    slots = {
        f"{source.module}:{node.lineno}": [
            constant.value
            for constant in ast.walk(node.value)
            if isinstance(constant, ast.Constant)
        ]
        for source in sources()
        for node in source.nodes
        if isinstance(node, ast.Assign)
        and [ast.unparse(target) for target in node.targets] == ["__slots__"]
    }

    assert slots
    assert [] == [place for place, names in slots.items() if len(names) != len(set(names))]


def test_named_tuples_have_no_other_base() -> None:
    """Python 3.10 refuses them when the module is imported, as in `NamedTuple, Generic[T]`."""
    assert [
        f"{source.module}.{node.name}"
        for source in sources()
        for node in source.nodes
        if isinstance(node, ast.ClassDef) and "NamedTuple" in _bases(node) and len(node.bases) > 1
    ] == []


def test_no_star_stands_before_a_tuple_that_is_written_out() -> None:
    """`ask(*(name, size), body)` is `ask(name, size, body)`."""
    assert [] == [
        f"{source.module}:{node.lineno}"
        for source in sources()
        for node in source.nodes
        if isinstance(node, ast.Starred) and isinstance(node.value, ast.Tuple)
    ]


#: The modules that make the parts of a stub.
_MAKERS = {"zmqtriton_stub.core", "zmqtriton_stub.loop", "zmqtriton_stub.played"}


def test_parts_of_a_stub_are_whole_when_they_are_made() -> None:
    """No attribute begins as a lambda in its place, or is set on a part of the object."""
    targets = [
        (source.module, ast.unparse(target), node.value)
        for source in sources()
        if within(source.module, ("zmqtriton_stub",))
        for node in source.nodes
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    of_self = [one for one in targets if re.match(r"self\.\w", one[1])]

    assert of_self
    assert [] == [
        f"{module}: {name}"
        for module, name, value in of_self
        if isinstance(value, ast.Lambda)
        or (module in _MAKERS and re.fullmatch(r"self\.\w+\.\w+", name))
    ]
