"""The page of what outlives a request names all that does, as far as a machine can see.

Functions that remember, names of modules that are written, and classes whose objects hold
collections, or something for the next request, are on docs/kept.md; and what that names, exists.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.repo.sources import files_below, tree_of
from tests.support.needs import ROOT

PAGE = ROOT / "docs" / "kept.md"
#: What a request passes, without what only operators ask.
SHORT_WAY = (
    "frontends/zmqtriton_frontends",
    "stub/zmqtriton_floor",
    "stub/zmqtriton_stub",
    "zmqtriton/broker",
    "zmqtriton/embedded",
    "extras/zmqtriton_extras/door",
    "extras/zmqtriton_extras/canaries/requests.py",
    "extras/zmqtriton_extras/openai/templates",
)
ASIDE = (
    "pages",
    "clouds",
    "openai",
    "control",
    "forks",
    "fork_server.py",
    "deadlock_report.py",
    "metrics",
)
_CACHES = {"lru_cache", "cache", "cached_property"}
#: Empty ones, to be filled.
_COLLECTIONS = re.compile(
    r"\{\}|\[\]|(?:dict|list|set|deque|Counter|OrderedDict|defaultdict|Weak\w+)\(\w*(?:=\w+)?\)"
)
#: Those of a dataclass.
_FIELDS = re.compile(r"field\(default_factory=(?:dict|list|set|deque|Counter|OrderedDict)\)")
#: Attributes that hold something for the next one.
_FOR_LATER = re.compile(r"_?(?:last|seen|known|kept|cached|edition|newest)(?:_\w+)?")


def sources() -> Iterator[tuple[Path, ast.Module]]:
    for root in SHORT_WAY:
        place = ROOT / root
        for path in files_below(place):
            if not set(ASIDE) & set(path.relative_to(ROOT / root).parts):
                yield path, tree_of(path)


def _named(node: ast.expr) -> str:
    return ast.unparse(node.func if isinstance(node, ast.Call) else node).rpartition(".")[2]


def _is_kept(target: ast.expr, value: ast.expr | None) -> bool:
    if value is not None and isinstance(target, ast.Name):
        return _FIELDS.fullmatch(ast.unparse(value)) is not None
    is_own = isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self"
    if not is_own or value is None:
        return False
    assert isinstance(target, ast.Attribute)
    is_collection = _COLLECTIONS.fullmatch(ast.unparse(value)) is not None
    return is_collection or _FOR_LATER.fullmatch(target.attr) is not None


def keepers(path: Path, tree: ast.Module) -> Iterator[str]:
    """Return what may remember something, as `module.name`."""
    module = path.parent.name if path.stem == "__init__" else path.stem
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and _CACHES & set(map(_named, node.decorator_list)):
            yield f"{module}.{node.name}"
        elif isinstance(node, ast.Global):
            yield from (f"{module}.{name}" for name in node.names)
        elif isinstance(node, ast.ClassDef) and any(
            _is_kept(target, value) for target, value in _assignments(node)
        ):
            yield f"{module}.{node.name}"


def _assignments(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Assign):
            yield inner.targets[0], inner.value
        elif isinstance(inner, ast.AnnAssign):
            yield inner.target, inner.value


def test_what_outlives_a_request_is_on_its_page() -> None:
    exist = {name for path, tree in sources() for name in keepers(path, tree)}
    named = set(re.findall(r"`(\w+\.\w+)`", PAGE.read_text("utf-8")))

    assert [] == sorted(exist - named), "not on the page"
    assert [] == sorted(named - exist), "there no more"
