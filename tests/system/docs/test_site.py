"""The documentation's site, built and judged by axe where it is ours: the text of the pages."""

from __future__ import annotations

import functools
import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from tests.conftest import ROOT, import_or_skip
from tests.support import axe
from tests.support.browser import Browser

pytestmark = pytest.mark.long(
    "repo/test_docs.py::test_headings_of_the_python_reference_leave_out_no_level"
)

#: Of each kind of page one; head, menu and foot are the theme's.
PAGES = (
    *("", "tutorial/", "wrong/", "changelog/", "deployment/systemd/", "guides/python-clients/"),
    *("reference/python/", "reference/config/", "reference/pb-utils/", "reference/http/"),
)
TEXT = "article"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    import_or_skip("mkdocs")
    directory = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-d", str(directory)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )
    handler = functools.partial(_Quiet, directory=str(directory))
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
        running.set_viewport(1280, 900)
        yield running


@pytest.mark.parametrize("page", PAGES)
def test_axe_finds_nothing_in_the_text_of_a_page(browser: Browser, site: str, page: str) -> None:
    browser.open(f"{site}/{page}")
    browser.wait_for(f"document.readyState === 'complete' && !!document.querySelector('{TEXT}')")

    assert [] == axe.violations(browser, TEXT)


def test_a_page_that_does_not_fit_is_found(browser: Browser, site: str) -> None:
    browser.open(f"{site}/tutorial/")
    browser.wait_for("document.readyState === 'complete'")
    browser.evaluate(f"document.querySelector('{TEXT} h2').outerHTML = '<h5>x</h5><img src=x>'")

    faults = axe.violations(browser, TEXT)

    assert {"heading-order", "image-alt"} <= {line.partition(":")[0] for line in faults}
