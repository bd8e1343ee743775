"""The rules on words: first lines of docstrings, subjects of clauses, names, length of pages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.repo.sources import files_below, nodes_of, tree_of
from tests.support.needs import ROOT

#: Clauses without a head: "What X does" leaves open whether X is returned, done or described.
HEADLESS = {"What", "Whether", "Who", "Whose", "Where", "How", "That", "Those"}
DIRECTORIES = ("zmqtriton", "stub", "frontends", "standard", "extras", "tests")
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings() -> Iterator[tuple[Path, str, str]]:
    """Return file, name and docstring of everything that has one."""
    for directory in DIRECTORIES:
        for path in files_below(ROOT / directory):
            for node in nodes_of(tree_of(path)):
                if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
                    yield path.relative_to(ROOT), getattr(node, "name", ""), text


def test_docstrings_begin_with_a_noun_or_an_imperative() -> None:
    assert [
        f"{path} {name}: {text.splitlines()[0]}"
        for path, name, text in docstrings()
        if text.split()[0] in HEADLESS
    ] == []


_VERBS = (
    "is|are|was|were|has|have|had|may|must|can|cannot|could|should|will|would|does|did|do|waits|"
    "comes|came|goes|runs|ran|costs|fails|failed|died|dies|begins|began|serves|remains|lies|"
    "happens|happened|changed|changes|holds|follows|works|exists|fits|starts|started|ends|ended|"
    "stays|needs|uses|takes|took|gets|wants|knows|asks|asked|says|said|reads|sends|sent|keeps|"
    "makes|made|allows|decides|connects|drains|speaks|exceeds|executes|arrives|arrived|belongs|"
    "differs|stands|served|reaches|looks|tries|writes|presents|hangs|loaded|calls|gives|sees"
)
_PEOPLE = (
    "servers?|supervisor|kernel|broker|stubs?|clients?|models?|frontends?|process(?:es)?|systemd|"
    "HAProxy|proxy|curl|it|them|everybody|nobody|requests?|answers?|instances?|threads?|page"
)
_ACTIONS = (
    "be|say|choose|tell|load|begin|end|answer|run|wait|make|keep|come|go|print|send|look|report|"
    "read|ask|follow|start|cancel|use|take|move|fail|serve|do|connect|change|hold|speak|pass|"
    "replace|compare|watch|drain|collect|execute|write|find|notice"
)
#: Clauses whose subject is no noun, and verbs that do not say who acts.
CLAUSES = {
    "who": re.compile(
        r"(?:^|[.;:(|]\s*|\b(?:and|or|but|of|to|for|by|than|if|that|since|because|where|when|from|"
        r"with|on|in|unless|while|into|says?|see|know|knows)\s+)"
        rf"who\s+(?:{_VERBS})\b",
        re.IGNORECASE | re.MULTILINE,
    ),
    "whoever": re.compile(rf"\bwhoever\b|\bwhatever (?:{_VERBS})\b", re.IGNORECASE),
    "what": re.compile(rf"\bwhat\s+(?:never |still |only |now )?(?:{_VERBS})\b", re.IGNORECASE),
    "those that": re.compile(
        r"(?:^|[.;:|]\s+)(?:those|ones?) (?:that|who|whose|which)\b", re.IGNORECASE | re.MULTILINE
    ),
    "is none": re.compile(r"\b(?:is|are|was|were) none\b(?! of)"),
    "has X do": re.compile(
        rf"\b(?:has|have|had) (?:(?:the|a|an|its|their|each|all|both|every) )?(?:\w+ )?"
        rf"(?:{_PEOPLE}) (?:{_ACTIONS})\b"
    ),
}
#: Words of all handwritten pages together.
MAX_WORDS = 91_010


def clauses(text: str) -> list[str]:
    """Return the clauses of the pattern in a text, with the words around them."""
    return [
        text[max(0, match.start() - 30) : match.end() + 30]
        for pattern in CLAUSES.values()
        for match in pattern.finditer(text)
    ]


#: A part of a page that a tool writes.
_GENERATED = re.compile("<!-- generated: .*?<!-- end -->", re.DOTALL)


def prose_of(page: Path, leaves_out: re.Pattern[str] | None = None) -> str:
    """Return the sentences of a page, each on a line of its own, without its code."""
    text = page.read_text("utf-8")
    if leaves_out:
        text = leaves_out.sub("", text)
    text = re.sub("^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub("<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub("^    .*$", "", text, flags=re.MULTILINE)
    return re.sub(r"(?<![|.:])\n(?=[^\n|#\-\d])", " ", text)


def pages() -> list[Path]:
    """Return the pages that people read: all but the protocol, which wire.py has."""
    patterns = ("*.md", "docs/**/*.md", "deploy/**/*.md", "standard/**/*.md", "zmqtriton/**/*.md")
    paths = {path for pattern in patterns for path in ROOT.glob(pattern)}
    return sorted(paths - {ROOT / "docs/protocol.md"})


def printed_texts() -> Iterator[tuple[Path, int, str]]:
    """Return place and text of strings of four words and more that are no docstrings."""
    for directory in DIRECTORIES[:-1]:
        for path in files_below(ROOT / directory):
            tree = tree_of(path)
            documents = {
                id(node.body[0].value)
                for node in nodes_of(tree)
                if isinstance(node, _DOCUMENTED)
                and node.body
                and isinstance(node.body[0], ast.Expr)
            }
            for node in nodes_of(tree):
                text = node.value if isinstance(node, ast.Constant) else ""
                if isinstance(text, str) and len(text.split()) > 3 and id(node) not in documents:
                    yield path.relative_to(ROOT), getattr(node, "lineno", 0), text


def test_pages_name_the_thing_that_acts() -> None:
    assert [] == [
        f"{page.relative_to(ROOT)}: {one}" for page in pages() for one in clauses(prose_of(page))
    ]


def test_printed_texts_name_the_thing_that_acts() -> None:
    assert [] == [
        f"{path}:{line}: {one}" for path, line, text in printed_texts() for one in clauses(text)
    ]


def test_docstrings_name_the_thing_that_acts() -> None:
    assert [] == [
        f"{path} {name}: {one}"
        for path, name, text in docstrings()
        if path.parts[0] != "tests"
        for one in clauses(text.splitlines()[0])
    ]


def test_handwritten_pages_are_short_enough_to_be_read() -> None:
    """All prose together, without code; most of it in tables."""
    generated = {"protocol.md", "conformance.md", "recorded-differences.md"}
    counted = [
        page
        for page in pages()
        if page.name not in generated
        and not {"reference", "examples"} & set(page.relative_to(ROOT).parts)
    ]

    prose = [prose_of(page, leaves_out=_GENERATED) for page in counted]
    words = [word for text in prose for word in text.split() if re.search(r"\w", word)]
    assert len(words) <= MAX_WORDS


#: Participles that say how something was come by, and not what it is.
PARTICIPLES = {"found", "wanted", "known", "given", "asked", "told", "most"}
#: How many bindings have such a name. This number may only fall.
MAX_PARTICIPLES = 90


def bindings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Return line and name of variables, parameters, attributes and functions."""
    for node in nodes_of(tree):
        name: str | None = None
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            name = node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, (*_DOCUMENTED[1:], ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
            name = node.name
        elif isinstance(node, ast.alias):
            name = node.asname
        if name:
            yield getattr(node, "lineno", 0), name


def test_names_say_what_they_hold() -> None:
    counted = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for directory in (*DIRECTORIES, "tools", "packages")
        for path in files_below(ROOT / directory)
        for line, name in bindings(tree_of(path))
        if name.strip("_") in PARTICIPLES
    ]

    assert len(counted) <= MAX_PARTICIPLES, counted


def test_the_readme_can_be_read_at_one_sitting() -> None:
    assert (ROOT / "README.md").read_text("utf-8").count("\n") <= 90
