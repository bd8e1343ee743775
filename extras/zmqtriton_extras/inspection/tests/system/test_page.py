"""The flame graph of a model and its debugger on the page, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.standard.cockpit.system.front_page import look_at
from tests.standard.ctl.system.commands import ctl
from tests.standard.tools.advice.world import World, code_of
from tests.standard.tools.system import broken_models as broken
from tests.support.browser import Browser
from tests.support.server import Server
from zmqtriton_extras.inspection.tests.operators import asked, debugged, operator, wait_for

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


def test_the_page_says_who_stands_where(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    options = [f"--runtime-directory={tmp_path}/run", "--model-control-mode=explicit"]
    code = code_of(broken.executing("breakpoint()"))
    line = next(n for n, text in enumerate(code.splitlines(), 1) if "breakpoint()" in text)
    with (
        Server(tmp_path / "server", ["add_sub"], options=options, frontends=()) as server,
        Browser(tmp_path) as browser,
    ):
        World(server, "stops").write(broken.CONFIG, code)
        ctl(server, "load", "stops")
        browser.open(f"{server.url}/")
        look_at(browser, "stops")
        with asked(server, "stops"):
            wait_for(lambda: debugged(server), "it waits")
            shown = "document.querySelector('#processes').innerText"
            at = f"Stands at model.py:{line} for"

            browser.wait_for(f"{shown}.includes({at!r})")
            browser.wait_for(f"{shown}.includes('waits for zmqtriton-ctl debug stops')")
            browser.wait_for(f"{shown}.includes('debugged')")

            with operator(server, "stops", "--pdb") as terminal:
                terminal.wait_for("(Pdb)")
                browser.wait_for(f"{shown}.includes('with an operator')")
                terminal.type("continue")
        browser.wait_for(f"!{shown}.includes('Stands at')")
        assert [] == browser.complaints
