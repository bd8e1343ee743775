"""A test that reaches behind the public names of another part says why, where it does."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator

import pytest

from tests.repo.sources import tree_of
from tests.support.needs import ROOT
from tools.suite import private_names


def _unexplained(text: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Return the private names of others whose paragraph has no comment up to them."""
    names = [*private_names(tree)]
    tokens = tokenize.generate_tokens(io.StringIO(text).readline) if names else ()
    comments = {token.start[0] for token in tokens if token.type == tokenize.COMMENT}
    lines = text.splitlines()
    for line, name in names:
        first = line
        while first > 1 and lines[first - 2].strip():
            first -= 1
        if comments.isdisjoint(range(first, line + 1)):
            yield line, name


def test_a_private_name_of_another_part_has_its_reason_beside_it() -> None:
    assert [] == [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for line, name in _unexplained(path.read_text("utf-8"), tree_of(path))
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("part._kept = 1\n", [(1, "_kept")]),
        ("from part import _KEPT\n", [(1, "_KEPT")]),
        ("# what is left\nassert not part._kept\n", []),
        ("assert not part._kept  # what is left\n", []),
        ("# of another paragraph\n\npart._kept = 1\n", [(3, "_kept")]),
        ("self._kept = super()._kept\nrow._replace(name='x')\n", []),
    ],
)
def test_a_reason_is_a_comment_of_the_paragraph(text: str, found: list[tuple[int, str]]) -> None:
    assert found == [*_unexplained(text, ast.parse(text))]
