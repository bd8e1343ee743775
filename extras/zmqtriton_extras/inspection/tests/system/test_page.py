"""The flame graph beside a model on the page, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.standard.cockpit.system.front_page import look_at
from tests.support.browser import Browser
from tests.support.server import Server

pytestmark = pytest.mark.system
PICTURE = "document.querySelector('#profile img')"
BUTTON = (
    "[...document.querySelectorAll('#actions-buttons button')]"
    ".find((one) => one.textContent === 'Profile')"
)


def test_one_click_shows_the_flame_graph_of_a_model(tmp_path: Path) -> None:
    options = ["--model-control-mode=explicit", "--load-model=add_sub"]
    (tmp_path / "server").mkdir()
    with (
        Server(tmp_path / "server", ["add_sub"], options=options, frontends=()) as server,
        Browser(tmp_path) as browser,
    ):
        browser.open(f"{server.url}/")
        look_at(browser, "add_sub")
        browser.wait_for(f"{BUTTON} && !{BUTTON}.hidden")

        browser.evaluate(f"{BUTTON}.click()")

        browser.wait_for("!document.querySelector('#profile').hidden")
        browser.wait_for(f"{PICTURE}.naturalWidth > 0")
        assert browser.evaluate(f"{PICTURE}.src").startswith("data:image/svg+xml")
        assert "add_sub.svg" == browser.evaluate("document.querySelector('#profile a').download")
        assert [] == browser.complaints


def test_who_may_not_restart_a_model_sees_no_button(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    with (
        Server(tmp_path / "server", ["add_sub"], frontends=()) as server,
        Browser(tmp_path) as browser,
    ):
        browser.open(f"{server.url}/")
        look_at(browser, "add_sub")
        browser.wait_for(f"!!{BUTTON}")

        assert browser.evaluate(f"{BUTTON}.hidden")
