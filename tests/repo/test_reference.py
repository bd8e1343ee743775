"""Generated pages: reference, manual and pictures."""

from __future__ import annotations

import html
import re
import subprocess
import sys

import pytest

from tests.repo.source_texts import is_in_the_source
from tests.support.needs import ROOT, find_tool
from tools import add_on_names, man_pages
from tools.reference import kinds
from tools.reference.__main__ import DIRECTORY, PAGES, text_of
from tools.screenshots import COLUMNS, GUIDES, PICTURES, svg_of
from zmqtriton.config import parameters
from zmqtriton.config.known_parameters import PARAMETERS
from zmqtriton.config.pbtxt import parse_text
from zmqtriton_floor.settings.offers import Hook
from zmqtriton_standard.ctl.statistics import HEADER

# --------------------------------------------------------------------------- reference
# The generated pages of docs/reference say what the sources say.


#: From 3.13 on argparse words options with two names in another way.
_IS_WORDED_ALIKE = sys.version_info < (3, 13)


@pytest.mark.parametrize("name", PAGES)
def test_it_is_up_to_date(name: str) -> None:
    if name == "command-lines.md" and not _IS_WORDED_ALIKE:
        pytest.skip("the page has the words of older Pythons")

    written = (DIRECTORY / name).read_text("utf-8")

    assert text_of(name) == written, "run: python -m tools.reference"


def test_the_guide_has_the_kinds_of_today_each_with_its_comment() -> None:
    assert kinds.written() == kinds.GUIDE.read_text("utf-8"), "run: python -m tools.reference"
    assert [] == [kind.name for kind in kinds.kinds() if not kind.about]


def _examples(page: str) -> list[str]:
    """The indented code of a page, a text for each block."""
    return re.findall(r"(?:^    .*\n)+", (DIRECTORY / page).read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("example", _examples("config.md"))
def test_the_examples_of_the_configuration_are_read(example: str) -> None:
    assert parse_text(example).ByteSize() > 0


def test_refusals_that_are_named_are_those_of_the_server() -> None:
    named = re.findall(r"Refused: `([^`]+)`", (DIRECTORY / "config.md").read_text("utf-8"))
    assert [] == [one for one in named if not is_in_the_source(one)]
    assert len(named) > 8


def _errors() -> list[list[tuple[str, str]]]:
    """Return the headings of each group of errors, and the paragraph below each heading."""
    groups = re.split("^## ", (DIRECTORY / "errors.md").read_text("utf-8"), flags=re.MULTILINE)
    return [re.findall(r"^### (.*)\n\n((?:.+\n)*)", group, re.MULTILINE) for group in groups]


def _text_of(heading: str) -> str:
    """Return the text of an error without the backquotes around it."""
    match = re.fullmatch("`(.+)`", heading)
    assert match is not None, heading
    return match[1]


def test_each_error_is_one_of_the_source() -> None:
    texts = [_text_of(heading) for group in _errors() for heading, _ in group]

    assert [] == [text for text in texts if not is_in_the_source(text)]
    assert 90 < len(set(texts)) == len(texts)


def test_errors_are_found_by_their_first_words() -> None:
    for group in _errors():
        words = [re.sub("[^a-z ]", "", _text_of(heading).lower()) for heading, _ in group]
        assert sorted(words) == words


def test_each_error_has_a_status_but_those_of_the_start_and_says_what_to_do() -> None:
    *groups, starts = filter(None, _errors())
    status = re.compile(r"\*\*(\d{3}|gRPC [A-Z_]+|Raised in the model)\b.*\.")

    assert [] == [one for group in groups for one in group if not status.match(one[1])]
    assert [] == [one for one in starts if one[1].count(". ") < 1]


def test_no_parameter_that_the_server_reads_is_left_out() -> None:
    constants = [
        value
        for name, value in vars(parameters).items()
        if name.isupper() and not isinstance(value, int | parameters.Quota | Hook)
    ]
    names = {one for value in constants for one in ([value] if type(value) is str else value)}

    assert names <= {one.name for of in PARAMETERS.values() for one in of}


def test_the_names_of_extras_that_may_be_missing_are_up_to_date() -> None:
    written = add_on_names.PATH.read_text("utf-8")

    assert add_on_names.text() == written, "run: python -m tools.add_on_names"


# --------------------------------------------------------------------------- man pages
# The manual pages say what the commands' help says, and can be read.


def test_they_are_up_to_date() -> None:
    written = {path.name: path.read_text("utf-8") for path in (ROOT / "man").iterdir()}

    assert man_pages.pages() == written, "run: python -m tools.man_pages"


@pytest.mark.parametrize("name", ["zmqtriton", "zmqtriton-ctl"])
def test_troff_has_nothing_to_complain_about(name: str) -> None:
    shown = subprocess.run(
        [find_tool("groff"), "-man", "-Tutf8", "-ww", "-rLL=78n", f"man/{name}.1"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )

    assert "" == shown.stderr
    assert "SEE ALSO" in re.sub(".\b", "", shown.stdout)


# ------------------------------------------------------------------------- screenshots
# The pictures of README and guides, which `python -m tools.screenshots` makes.


TOP = GUIDES / "top.svg"


@pytest.mark.parametrize("file", [TOP.name, *(picture.file for picture in PICTURES)])
def test_a_picture_is_small(file: str) -> None:
    assert 1000 < (GUIDES / file).stat().st_size < 150_000


def test_the_picture_of_top_has_the_columns_of_top() -> None:
    words = _words(TOP.read_text("utf-8"))

    assert "q: quit" in words
    assert re.search(" +".join(HEADER), words)


def test_a_terminal_is_drawn_with_its_words_and_colours_and_loads_nothing() -> None:
    svg = svg_of(f"\x1b[1mModel\x1b[0m\r\n\x1b[31m{'x' * COLUMNS}\x1b[0m  \n", "a <title>")

    assert ["a <title>", "Model", "x" * COLUMNS] == _words(svg).split("\n")
    assert re.search(r"font-weight: bold", svg)
    assert [] == re.findall(r"https?://(?!www\.w3\.org|www\.textualize\.io)|@import|url\(h", svg)


def _words(svg: str) -> str:
    """The texts of a drawing, line by line."""
    lines: dict[str, list[str]] = {}
    for y, text in re.findall(r'<text[^>]* y="([\d.]+)"[^>]*>([^<]*)</text>', svg):
        lines.setdefault(y, []).append(html.unescape(text).replace("\xa0", " "))
    return "\n".join(" ".join(line).strip() for line in lines.values())
