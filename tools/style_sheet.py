"""The style sheet of docs and comments, as patterns.

`python -m tools.style_sheet RULE` lists the places of a rule. A pattern finds constructions, not
mistakes; their numbers by room may only fall (tests/repo/test_style.py).
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.repo.sources import files_below, nodes_of, tree_of
from tests.support.needs import ROOT

#: Rooms whose counts are held apart; a file belongs to the first that has it.
ROOMS = (
    "zmqtriton/broker",
    "zmqtriton/supervisor",
    "zmqtriton",
    "stub",
    "frontends",
    "standard",
    "extras",
    "README.md",
    "docs",
    "deploy",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
)
#: Pages of users: neither generated ones nor those of the project.
_NOT_FOR_USERS = {"conformance.md", "decisions.md", "kept.md", "protocol.md", "reference"} | {
    "recorded-differences.md",
    "differences.md",
    "reliability.md",
}
_HEADS = "What|Who|Whoever|Whose|Where|Those|That|As|Of|By|In|With|Behind|For|From|On|At|Since"
#: Rule by name: the kinds of text that it is about, and its pattern in their first line or text.
COMMENT, DOCSTRING, PAGE, TEXT = "comment", "docstring", "page", "text"


class Rule(NamedTuple):
    kinds: tuple[str, ...]
    pattern: re.Pattern[str]
    #: Only the first line counts.
    is_of_head: bool = False


RULES = {
    "1 a comment begins with a noun": Rule((COMMENT,), re.compile(rf"^(?:{_HEADS})\b"), True),
    "2 a number has a name and a unit": Rule(
        (COMMENT,), re.compile(r"^(?:How|So) (?:many|much|long|often)\b"), True
    ),
    "3 a pronoun is no head": Rule((COMMENT,), re.compile(r"^(?:It|They|Its|Their)\b"), True),
    "3 a pronoun is no object": Rule(
        (DOCSTRING,),
        re.compile(r"^[A-Z]\w+ (?:it|them|this|that|these|those|the same|more|one)\b"),
        True,
    ),
    "4 return a noun": Rule(
        (DOCSTRING,), re.compile(r"^(?:Return|Yield) (?:what|how|where|who|those|when)\b"), True
    ),
    "5 name who acts": Rule(
        (COMMENT, DOCSTRING, PAGE),
        re.compile(r"\b(?:nobody|somebody|everybody|whoever)\b", re.IGNORECASE),
    ),
    "6 words of today": Rule(
        (COMMENT, DOCSTRING, PAGE),
        re.compile(r"\b(?:anew|meanwhile|likewise|thereby)\b|, too(?=[.,;:)|]|$)", re.MULTILINE),
    ),
    "7 files are somewhere, services continue": Rule(
        (COMMENT, DOCSTRING, PAGE),
        re.compile(
            r"\b(?:lies?|stands?) (?:in|on|at|beside|behind|below|above|there|next|open|for)\b"
            r"|\b(?:go(?:es)? on|beside)\b|\bin place of\b"
        ),
    ),
    "8 facts are logged, reported, sent": Rule(
        (COMMENT, DOCSTRING, PAGE),
        re.compile(r"\b(?:is|are|was|be) told\b|\bhears?\b|\b[Tt]akes? note\b"),
    ),
    "9 no preposition before which": Rule(
        (COMMENT, DOCSTRING, PAGE),
        re.compile(r"\b(?:of|for|by|on|in|to|from) (?:which|whom|whose)\b"),
    ),
    "10 a last clause names its noun": Rule(
        (COMMENT, DOCSTRING, PAGE),
        re.compile(
            r"(?<!so )\b(?:that|those) of\b|\b(?:no|one|any|none) such\b"
            r"|\b(?:is|are|does|do|did|says?|said) so(?=[.,;:)|]|$)",
            re.MULTILINE,
        ),
    ),
    "13 no sentence runs through code": Rule((PAGE,), re.compile(r"(?m)^\x00\n+[a-z]")),
    "14 a table has a head": Rule((PAGE,), re.compile(r"(?m)^\|(?: *\|)+$")),
    "18 a heading names its content": Rule(
        (PAGE,),
        re.compile(r"(?m)^#+ .*\b(?:it|them|whose|elsewhere|there|better)\b", re.IGNORECASE),
    ),
    "20 an error says what to do": Rule(
        (TEXT,), re.compile(r"is there twice|must be a text|\bof the name\b")
    ),
}
_COMMENT = re.compile(r"(?:^|\n) *#: ([^\n]*(?:\n *#: [^\n]*)*)")


class Text(NamedTuple):
    path: Path
    line: int
    kind: str
    text: str


@cache
def texts() -> tuple[Text, ...]:
    return tuple(_texts())


def _texts() -> Iterator[Text]:
    for room in ("zmqtriton", "stub", "frontends", "standard", "extras"):
        for path in files_below(ROOT / room):
            yield from _texts_of(path)
    pages = (path for path in ROOT.glob("*.md") if path.name in ROOMS)
    for path in [*pages, *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md")]:
        if not _NOT_FOR_USERS & set(path.parts):
            yield Text(path, 1, PAGE, without_code(path.read_text("utf-8")))


def _texts_of(path: Path) -> Iterator[Text]:
    source = path.read_text("utf-8")
    for match in _COMMENT.finditer(source):
        line = source.count("\n", 0, match.start(1)) + 1
        yield Text(path, line, COMMENT, re.sub(r"\n *#: ", " ", match[1]))
    documents = set()
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in nodes_of(tree_of(path)):
        if isinstance(node, documented) and (text := ast.get_docstring(node)):
            documents.add(id(node.body[0].value))  # type: ignore[attr-defined]
            yield Text(path, getattr(node, "lineno", 1), DOCSTRING, text)
    for node in nodes_of(tree_of(path)):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in documents:
            yield Text(path, node.lineno, TEXT, node.value)  # type: ignore[attr-defined]


def without_code(page: str) -> str:
    """Return a page with a null byte for each block of code."""
    page = re.sub("<!--.*?-->\n?", "", page, flags=re.DOTALL)
    page = re.sub("(?ms)^ *```.*?^ *```$", "\x00", page)
    return re.sub("(?m)(?:^(?:    .*)?\n)*^    .*$", "\x00", page)


def places(rule: Rule) -> Iterator[tuple[str, int, str]]:
    """Yield the file, the line and the words of each place that a rule finds."""
    for path, line, kind, text in texts():
        if kind in rule.kinds:
            looked = text.partition("\n")[0] if rule.is_of_head else text
            for match in rule.pattern.finditer(looked):
                at = line + (looked.count("\n", 0, match.start()) if kind == PAGE else 0)
                words = " ".join(looked[match.start() : match.start() + 70].split())
                yield path.relative_to(ROOT).as_posix(), at, words


def counts() -> dict[str, dict[str, int]]:
    """Return the number of places by rule and room."""
    return {
        name: dict(sorted(Counter(_room(path) for path, _, _ in places(rule)).items()))
        for name, rule in RULES.items()
    }


def _room(path: str) -> str:
    return next(room for room in ROOMS if path == room or path.startswith(f"{room}/"))


def main() -> int:
    chosen = sys.argv[1:]
    for name, rule in RULES.items():
        found = [*places(rule)]
        if chosen and name.partition(" ")[0] in chosen:
            print(*(f"{path}:{line}: {words}" for path, line, words in found), sep="\n")
        print(f"{len(found):5}  {name}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
