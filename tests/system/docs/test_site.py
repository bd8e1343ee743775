"""The documentation's site, built and judged by axe."""

from __future__ import annotations

import functools
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.support import axe
from tests.support.browser import Browser
from tests.support.needs import ROOT, import_or_skip
from tests.support.waiting import eventually
from zmqtriton_floor import __version__

pytestmark = pytest.mark.long(
    "repo/test_docs.py::test_headings_of_the_python_reference_leave_out_no_level"
)

#: Of each kind of page one.
PAGES = ("", "guides/streaming/", "deployment/systemd/", "reference/python/", "reference/config/")


@pytest.fixture(scope="module")
def site_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import_or_skip("mkdocs")
    directory = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(directory)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )
    return directory


@pytest.fixture(scope="module")
def site(site_directory: Path) -> Iterator[str]:
    handler = functools.partial(_Quiet, directory=str(site_directory))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as running:
        yield running


def open_page(browser: Browser, url: str, *, dark: bool = False) -> None:
    browser.set_viewport(1280, 900, dark=dark)
    browser.open(url)
    browser.wait_for("document.readyState === 'complete' && !!document.querySelector('article')")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("page", PAGES)
def test_axe_finds_nothing(browser: Browser, site: str, page: str, dark: bool) -> None:
    open_page(browser, f"{site}/{page}", dark=dark)

    assert [] == axe.violations(browser)


def test_each_page_says_which_version_it_describes(site: str) -> None:
    for page in ("", "reference/errors/"):
        with urllib.request.urlopen(f"{site}/{page}") as response:
            text = response.read().decode()

        bar = text.partition('class="md-banner"')[2].partition("</aside>")[0]
        assert f"zmqtriton {__version__}" in bar, page


def test_the_bar_names_changes_that_are_not_released_if_there_are_any() -> None:
    docs_pages = import_or_skip("tools.docs_pages")
    head, released = "# Changelog\n\n## [Unreleased]\n", "\n## [0.1.0]\n\n- It serves.\n"

    assert "zmqtriton 0.1.0" == docs_pages.version_bar(head + released, "0.1.0")
    assert "zmqtriton 0.1.0" == docs_pages.version_bar(head + "\n### Fixed\n" + released, "0.1.0")
    bar = docs_pages.version_bar(head + "\n### Fixed\n\n- A fault.\n" + released, "0.1.0")
    assert "not released" in bar
    assert "changelog/#unreleased" in bar


def test_each_link_within_the_site_leads_to_a_file(site_directory: Path) -> None:
    pages = sorted(site_directory.rglob("*.html"))
    missing = set()
    for page in pages:
        for link in re.findall('<a [^>]*?href="([^"#?]+)', page.read_text("utf-8")):
            target = page.parent / unquote(link)
            path = target / "index.html" if target.is_dir() else target
            if ":" not in link and not link.startswith("/") and not path.is_file():
                missing.add((str(page.relative_to(site_directory)), link))

    assert (set(), True) == (missing, len(pages) > 50)
    assert "Apache License" in (site_directory / "LICENSE.txt").read_text("utf-8")


def is_at(browser: Browser, address: str) -> bool:
    try:
        return bool(browser.evaluate("location.href") == address)
    except AssertionError:
        return False  # Chromium evaluates nothing while a page leads to another one


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("deployment/grafana/", "/deployment/prometheus/#a-dashboard-for-grafana"),
        ("deployment/grafana/#rows-and-panels", "/deployment/prometheus/#rows-and-panels"),
        ("guides/capacity/#budgets", "/guides/more-models/#budgets"),
        ("guides/capacity/", "/guides/overload/"),
        ("guides/scaling/#affinity", "/guides/load-balancing/#affinity-to-an-instance"),
    ],
)
def test_an_old_address_leads_to_its_new_one(
    browser: Browser, site: str, old: str, new: str
) -> None:
    browser.open(f"{site}/{old}")

    eventually(lambda: is_at(browser, f"{site}{new}"), 60.0, new)


def test_notes_and_warnings_are_boxes() -> None:
    docs_pages = import_or_skip("tools.docs_pages")
    page = "One.\n\n> **Warning:** Two\n> lines.\n>\n>     and code\n\n> A quotation.\n"

    expected = "One.\n\n!!! warning\n\n    Two\n    lines.\n\n        and code\n\n> A quotation.\n"
    assert expected == docs_pages.boxes(page)


def test_alternatives_are_tabs() -> None:
    docs_pages = import_or_skip("tools.docs_pages")
    page = "<!-- tabs -->\n\n**A**\n\n    a\n\n**B**\n\nb\n\n<!-- end of tabs -->\n\n**C**\n"

    assert '\n=== "A"\n\n        a\n\n=== "B"\n\n    b\n\n\n**C**\n' == docs_pages.tabs(page)


def test_sessions_have_colours() -> None:
    docs_pages = import_or_skip("tools.docs_pages")
    page = "One.\n\n    $ ls\n    a\n\n    b\n\nTwo.\n\n    models/\n\n1. Step\n\n        $ ls\n"

    expected = page.replace("    $ ls\n    a\n\n    b\n", "```console\n$ ls\na\n\nb\n```\n", 1)
    assert expected == docs_pages.sessions(page)


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("# A\n\nSee **how** [it](x.md) runs `b` v0.1. Then.\n", "See how it runs b v0.1."),
        ("# A\n\n<!-- x -->\n\nFirst\nline: second.\n", "First line: second."),
        ("# A\n\nGenerated by `python -m tools.x` from y.\n\nRun this:\n\n    b\n", "Run this"),
        ("# A\n\n| a |\n|---|\n", ""),
    ],
)
def test_a_page_is_described_by_its_first_sentence(page: str, expected: str) -> None:
    docs_pages = import_or_skip("tools.docs_pages")

    assert expected == docs_pages.description(page)


def test_a_copied_session_has_neither_prompts_nor_outputs(browser: Browser, site: str) -> None:
    open_page(browser, f"{site}/guides/image-classifier/")

    script = (
        "[...document.querySelectorAll('[data-clipboard-text]')].map(b => b.dataset.clipboardText)"
    )
    browser.wait_for(f"{script}.length > 0")
    first = browser.evaluate(f"{script}[0]")
    assert ["curl", "curl"] == [line.partition(" ")[0] for line in str(first).splitlines()]


def test_words_of_readers_are_found(site: str) -> None:
    with urllib.request.urlopen(f"{site}/search/search_index.json") as response:
        entries = json.load(response)["docs"]
    texts = [" ".join((e["title"], e["text"], *e.get("tags", ()))).lower() for e in entries]

    words = ["image classifier", "audio", "authentication", "login", "hot reload", "zero downtime"]
    words += ["rollback", "cold start", "health check", "liveness", "structured outputs", "mtls"]
    words += ["reverse proxy", "function or tool calling", "nginx", "whisper", "hugging face"]
    assert [] == [word for word in words if not any(word in text for text in texts)]
    docs_pages = import_or_skip("tools.docs_pages")
    assert set() == {*docs_pages.WORDS} - {entry["location"] for entry in entries}


def test_what_users_type_into_the_search_is_in_a_heading(site: str) -> None:
    with urllib.request.urlopen(f"{site}/search/search_index.json") as response:
        titles = [entry["title"].lower() for entry in json.load(response)["docs"]]

    words = ["install", "remove", "macos", "windows", "wsl", "supported versions", "deprecations"]
    words += ["pdb", "debugpy", "breakpoint", "benchmark", "sizing", "response cache"]
    words += ["rate limiter", "frequently asked questions", "ensemble", "gpu", "checklist"]
    assert [] == [word for word in words if not any(word in title for title in titles)]
