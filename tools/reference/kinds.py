"""The table of kinds in the guide "Extend the server", made from hooks and their comments."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.repo.sources import Source, sources
from tests.support.needs import ROOT

GUIDE = ROOT / "docs" / "guides" / "extending.md"
_BEGIN, _END = "<!-- generated: python -m tools.reference -->\n", "<!-- end -->"


class KindOfOffers(NamedTuple):
    name: str
    #: The type of an offer, as the source has it.
    type: str
    about: str
    #: What a module offers, if that is its type: names with what each is.
    members: tuple[tuple[str, str], ...] = ()


def kinds() -> list[KindOfOffers]:
    """Return the kind of each hook of the core and of standard, by name."""
    return sorted(kind for source in sources() for kind in _kinds_of(source))


def _kinds_of(source: Source) -> Iterator[KindOfOffers]:
    lines = source.path.read_text("utf-8").splitlines()
    classes = {node.name: node for node in source.tree.body if isinstance(node, ast.ClassDef)}
    for node in source.tree.body:
        if isinstance(node, ast.Assign) and isinstance(call := node.value, ast.Call):
            hook = call.func
            if isinstance(hook, ast.Subscript) and ast.unparse(hook.value) == "Hook":
                type_ = ast.unparse(hook.slice)
                members = _members(classes[type_], lines) if type_ in classes else ()
                name = ast.literal_eval(call.args[0])
                yield KindOfOffers(name, type_, _comment(lines, node.lineno), tuple(members))


def _members(protocol: ast.ClassDef, lines: list[str]) -> Iterator[tuple[str, str]]:
    if "Protocol" in map(ast.unparse, protocol.bases):
        for node in protocol.body:
            if isinstance(node, ast.AnnAssign):
                yield ast.unparse(node.target), _comment(lines, node.lineno)


def _comment(lines: list[str], number: int) -> str:
    """Return the comment above a line, which counts from 1."""
    words: list[str] = []
    for line in reversed(lines[: number - 1]):
        match = re.match(r"\s*#: ?(.*)", line)
        if match is None:
            break
        words.insert(0, match[1])
    return " ".join(words)


def table() -> str:
    """Return the table of all kinds; kinds of one host follow each other."""
    rows = ["| Kind | Your part | Its type |", "|---|---|---|"]
    for kind in kinds():
        about = kind.about + "".join(f" `{name}`: {text}" for name, text in kind.members)
        rows.append(f"| `{kind.name}` | {about.rstrip('.')} | `{_shown(kind.type)}` |")
    return "\n".join(rows) + "\n"


def _shown(type_: str) -> str:
    """Return a type as people write it: `(Path) → Iterable[Problem]`."""
    while match := re.search(r"Callable\[\[((?:[^\[\]]|\[[^\[\]]*\])*)\], ", type_):
        begin, at, depth = match.start(), match.end(), 1
        for at in range(match.end(), len(type_)):
            depth += {"[": 1, "]": -1}.get(type_[at], 0)
            if not depth:
                break
        type_ = f"{type_[:begin]}({match[1]}) → {type_[match.end() : at]}{type_[at + 1 :]}"
    return type_.replace("|", "or").replace("ModuleType", "package").replace("str", "text")


def written() -> str:
    """Return the text of the guide with current tables."""
    text = Path(GUIDE).read_text("utf-8")
    before, _, rest = text.partition(_BEGIN)
    return f"{before}{_BEGIN}\n{table()}\n{_END}{rest.partition(_END)[2]}"
