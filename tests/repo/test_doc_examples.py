"""Each code block of the documentation is run by a test, or says why not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.system.docs.examples import Block, output_pattern, read_blocks, split_session
from tests.system.docs.pages import PAGES

#: Pages of which no block is run by `tests/system/docs`, and why.
NOT_RUN = {
    "ARCHITECTURE.md": "drawings",
    "docs/protocol.md": "generated from wire.py",
    "docs/reference/command-lines.md": "generated from what --help prints",
    "docs/reference/config.md": "generated; pieces of configurations of many models",
    "docs/reference/pb-utils.md": "generated; test_pb_utils_page.py runs the models",
    "deploy/README.md": "tests/system/deploy writes the files",
    "deploy/debian/README.md": "installs packages on the machine",
    "deploy/docker/README.md": "needs a Docker engine",
    "deploy/grafana/README.md": "installs files on the machine",
    "deploy/haproxy/README.md": "tests/repo/test_deploy.py checks the file; the rest installs it",
    "deploy/kserve/README.md": "needs a cluster",
    "deploy/kubernetes/README.md": "needs a cluster",
    "deploy/prometheus/README.md": "installs files on the machine",
    "deploy/systemd/README.md": "installs files on the machine",
    "packages/pytriton/README.md": "changes the environment",
    "packages/tritonserver/README.md": "changes the environment",
}


def all_pages() -> list[str]:
    patterns = ("*.md", "docs/**/*.md", "deploy/**/*.md", "packages/**/*.md")
    paths = (path for pattern in patterns for path in ROOT.glob(pattern))
    return sorted({path.relative_to(ROOT).as_posix() for path in paths})


def blocks_of(page: str) -> list[Block]:
    return read_blocks(ROOT / page, ROOT)


@pytest.mark.parametrize("page", all_pages())
def test_each_page_with_code_is_run(page: str) -> None:
    assert bool(blocks_of(page)) == (page in PAGES or page in NOT_RUN)


def test_no_page_is_both_run_and_not() -> None:
    assert set() == set(PAGES) & set(NOT_RUN)
    assert set() == {*PAGES, *NOT_RUN} - set(all_pages())


@pytest.mark.parametrize("page", PAGES)
def test_what_is_not_run_says_why(page: str) -> None:
    for block in blocks_of(page):
        assert block.note("not run") != "", block.place


@pytest.mark.parametrize("page", PAGES)
def test_a_test_that_runs_a_block_exists(page: str) -> None:
    for block in blocks_of(page):
        if (test := block.note("tested")) is not None:
            assert (ROOT / test).is_file(), block.place


def page_of(text: str, directory: Path) -> list[Block]:
    path = directory / "page.md"
    path.write_text(text)
    return read_blocks(path, directory)


def test_blocks_are_fenced_or_indented(tmp_path: Path) -> None:
    blocks = page_of("Text\n\n    a\n\n    b\n\nmore\n\n```python\nc\n```\n", tmp_path)

    assert [("", "a\n\nb\n"), ("python", "c\n")] == [(b.language, b.text) for b in blocks]


def test_comments_belong_to_the_block_behind_them(tmp_path: Path) -> None:
    comments = "<!-- example: before\nmkdir x\n-->\n<!-- example: form -->\n\n"
    text = f"{comments}    $ ls\n    x\n\nand\n\n    y\n"

    first, second = page_of(text, tmp_path)

    assert ("mkdir x", "") == (first.note("before"), first.note("form"))
    assert () == second.notes


def test_a_comment_with_an_unknown_word_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="no such note"):
        page_of("<!-- example: perhaps -->\n\n    $ ls\n", tmp_path)


def test_a_session_has_commands_of_several_lines() -> None:
    session = "$ curl a -d '{\n    \"x\": 1}'\n{}\n$ ls \\\n    b\nb\n$ true\n"

    assert [
        ("curl a -d '{\n    \"x\": 1}'", "{}\n"),
        ("ls \\\n    b", "b\n"),
        ("true", ""),
    ] == split_session(session)


@pytest.mark.parametrize(
    ("expected", "printed", "is_form", "fits"),
    [
        ("a 1\n", "a 1\n", False, True),
        ("a 1\n", "a 2\n", False, False),
        ("a 1\n", "a  22.5\n", True, True),
        ("a 1\n", "b 1\n", True, False),
        ("a … c\n", "a b c\n", False, True),
        ("a\n…\nz\n", "a\nb\nc\nz\n", False, True),
        ("a\n…\nz\n", "a\nz\n", False, True),
        ("a\n", "a\nb\n", False, False),
    ],
)
def test_outputs_are_compared(expected: str, printed: str, is_form: bool, fits: bool) -> None:
    pattern = output_pattern(expected, is_form=is_form)

    assert fits == (re.fullmatch(pattern, printed) is not None)
