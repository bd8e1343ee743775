"""Each code block of the documentation is run by a test, or says why not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.needs import ROOT
from tests.system.docs.examples import Block, output_pattern, read_blocks, split_session
from tests.system.docs.pages import PAGES

#: Pages of which no block is run by `tests/system/docs`, and why.
NOT_RUN = {
    "ARCHITECTURE.md": "drawings",
    "docs/install.md": "changes the environment, and the machine",
    "docs/protocol.md": "generated from wire.py",
    "docs/reference/command-lines.md": "generated from what --help prints",
    "docs/reference/config.md": "generated; pieces of configurations of many models",
    "docs/reference/pb-utils.md": "generated; test_pb_utils_page.py runs the models",
    "deploy/README.md": "tests/system/deploy writes the files",
    "deploy/debian/README.md": "installs packages on the machine",
    "deploy/docker/README.md": "needs a Docker engine",
    "deploy/grafana/README.md": "installs files on the machine",
    "deploy/haproxy/README.md": "tests/releases/test_deploy.py checks it; the rest installs it",
    "deploy/kserve/README.md": "needs a cluster",
    "deploy/kubernetes/README.md": "needs a cluster",
    "deploy/prometheus/README.md": "installs files on the machine",
    "deploy/systemd/README.md": "installs files on the machine",
    "packages/client/README.md": "changes the environment",
    "packages/pytriton/README.md": "changes the environment",
    "packages/tritonserver/README.md": "changes the environment",
}


def all_pages() -> list[str]:
    patterns = ("*.md", "docs/**/*.md", "deploy/**/*.md", "packages/**/*.md")
    paths = (path for pattern in patterns for path in ROOT.glob(pattern))
    return sorted({path.relative_to(ROOT).as_posix() for path in paths})


def blocks_of(page: str) -> list[Block]:
    return read_blocks(ROOT / page, ROOT)


def test_each_page_with_code_is_run() -> None:
    assert {*PAGES, *NOT_RUN} == set(filter(blocks_of, all_pages()))


def test_no_page_is_both_run_and_not() -> None:
    assert set() == set(PAGES) & set(NOT_RUN)
    assert set() == {*PAGES, *NOT_RUN} - set(all_pages())


def test_what_is_not_run_says_why_and_what_is_has_a_test() -> None:
    for block in (block for page in PAGES for block in blocks_of(page)):
        assert block.note("not run") != "", block.place
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

    first, second = page_of(f"{comments}    $ ls\n    x\n\nand\n\n    y\n", tmp_path)

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
    assert fits == (re.fullmatch(output_pattern(expected, is_form=is_form), printed) is not None)


#: What a comment before a block makes, and the pattern of the visible text that tells its reader.
_MAKES = (
    (re.compile(r"zmqtriton new (\S+)"), r"zmqtriton new {}\b"),
    (re.compile(r"\$MODELS/(\S+)"), r"zmqtriton demo\b"),
    (
        re.compile(r"^(?:tritonserver|zmqtriton) (?:--|run|demo)", re.MULTILINE),
        r"zmqtriton (--|run|demo)",
    ),
    (re.compile(r"(?:^|[^&2])>>? *(?!/dev/null)([\w./-]+)"), r"\b{}\b"),
    (re.compile(r"(?:touch|-out|-keyout|save\(['\"]) *([\w./-]+)"), r"\b{}\b"),
    (re.compile(r"\$ROOT/(\S+)"), r"nothing of a checkout is there: {}"),
)

#: Pages that show outputs of a model that stands in a comment.
_UNTOLD = {"docs/guides/jobs.md"}


def untold(block: Block, visible: str) -> list[str]:
    """Return what a comment before the block makes and no visible text of the page names."""
    preparations = [
        (match[0].strip(), hint.format(re.escape(match[match.lastindex or 0])))
        for pattern, hint in _MAKES
        for match in pattern.finditer(block.note("before") or "")
    ]
    return [text for text, hint in preparations if not re.search(hint, visible)]


@pytest.mark.parametrize("page", [page for page in PAGES if page not in _UNTOLD])
def test_what_a_comment_makes_is_told_to_the_reader(page: str) -> None:
    visible = re.sub(r"<!--.*?-->", "", (ROOT / page).read_text("utf-8"), flags=re.DOTALL)

    missing = {block.place: lacks for block in blocks_of(page) if (lacks := untold(block, visible))}
    assert {} == missing


@pytest.mark.parametrize(
    ("commands", "text", "expected"),
    [
        ("zmqtriton new prices", "Here `prices` serves.", ["zmqtriton new prices"]),
        ("zmqtriton new prices", "After `zmqtriton new prices`:", []),
        ("cp -r $MODELS/add_sub models/", "The models:", ["$MODELS/add_sub"]),
        ("cp -r $MODELS/add_sub models/", "`zmqtriton demo models` writes them.", []),
        ("zmqtriton --model-repository=models", "Ask:", ["zmqtriton --"]),
        ("printf x > request.json", "The request:", ["> request.json"]),
        ("printf x > request.json", "`request.json` is a request.", []),
        ("ask 2>/dev/null >/dev/null", "Ask:", []),
    ],
)
def test_a_reader_is_not_told_by_comments(
    commands: str, text: str, expected: list[str], tmp_path: Path
) -> None:
    [block] = page_of(f"<!-- example: before\n{commands}\n-->\n\n    $ ls\n", tmp_path)

    assert expected == untold(block, text)
