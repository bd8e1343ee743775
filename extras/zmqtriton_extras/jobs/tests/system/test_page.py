"""Jobs on the page of the server, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.standard.cockpit.system.front_page import look_at, part
from tests.support.browser import Browser
from tests.support.journal import UNTIL_RELEASED, executions, release_execution
from tests.support.server import Server
from zmqtriton_extras.jobs.tests.asking import add_journal, ask, ended, soon, submit
from zmqtriton_extras.jobs.tests.batches.requests import CHAT, begin, line

pytestmark = pytest.mark.system

LINK = "document.querySelector('[data-part=jobs]')"
ROWS = "document.querySelectorAll('#job-list tbody tr:not(.reason)')"
#: What a person reads of the rows.
TEXTS = f"[...{ROWS}].map((row) => row.innerText.replaceAll(/\\s+/g, ' '))"
BATCHES = "document.querySelectorAll('#batch-list tbody tr:not(.reason)')"
BATCH_TEXTS = f"[...{BATCHES}].map((row) => row.innerText)"
STATES = f"[...{ROWS}].map((row) => row.querySelector('.state').innerText).join()"


def test_the_server_s_jobs_are_a_part_of_the_page(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    server = Server(tmp_path, options=["--jobs"], frontends=())
    add_journal(server, JOBS_LIMIT="1")
    add_journal(server, "other")
    with server, Browser(tmp_path_factory.mktemp("browser")) as browser:
        browser.open(f"{server.url}/")
        browser.wait_for(f"!{LINK}.hidden")
        part(browser, "jobs")
        browser.wait_for(
            "document.querySelector('#jobs .hint').innerText.startsWith('There are none now.')"
        )

        running = submit(server, "running", UNTIL_RELEASED).document["id"]
        soon(lambda: executions(server.journal).get("running") == 1)
        wrong = ask(server, "/v2/models/other/infer", b"{}", {"Prefer": "respond-async"}).document[
            "id"
        ]
        reason = ended(server, wrong)["reason"]

        browser.wait_for(f"{STATES} === 'failed,running'")
        texts = browser.evaluate(TEXTS)
        assert [wrong, running] == [text.split()[0] for text in texts]
        assert all("/infer" in text for text in texts)
        assert reason == browser.evaluate(
            "document.querySelector('#job-list .reason:not([hidden])').innerText.trim()"
        )

        release_execution(server.journal, "running")
        browser.wait_for(f"{STATES} === 'failed,succeeded'")
        ask(server, f"/v2/jobs/{wrong}", method="DELETE")
        browser.wait_for(f"{STATES} === 'succeeded'")

        # they are no model's
        look_at(browser, "journal")
        assert browser.evaluate(f"{LINK}.hidden") is True
        assert browser.complaints == []


def test_batches_are_listed_and_cancelled_on_the_page(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    options = ["--jobs", "--allow-openai"]
    server = Server(tmp_path, ["parrot", "add_sub"], options=options, frontends=())
    with server, Browser(tmp_path_factory.mktemp("browser")) as browser:
        browser.open(f"{server.url}/")
        browser.wait_for(f"!{LINK}.hidden")
        part(browser, "jobs")
        wrong = begin(server, b"{}")
        begun = begin(server, line("a"), line("never", "FOREVER"))

        browser.wait_for(f"{BATCHES}.length === 2")
        browser.wait_for(f"{BATCHES}[0].innerText.includes('1 of 2')")
        texts = [" ".join(text.split()) for text in browser.evaluate(BATCH_TEXTS)]
        assert [begun, wrong] == [text.split()[0] for text in texts]
        assert "in_progress" in texts[0]
        assert texts[0].endswith(f"{CHAT} Cancel")
        browser.wait_for(f"{BATCHES}[1].querySelector('.state').innerText === 'failed'")
        reason = "document.querySelector('#batch-list .reason:not([hidden])').innerText.trim()"
        assert browser.evaluate(reason).startswith("Line 1: ")

        browser.click(f"[aria-label='Cancel {begun}']")
        browser.wait_for("document.getElementById('confirm').open")
        browser.click("#confirm [value=yes]")
        browser.wait_for(f"{BATCHES}[0].querySelector('.state').innerText === 'cancelled'")
        assert browser.evaluate(f"{BATCHES}[0].querySelector('button').hidden")
        assert browser.complaints == []


@pytest.mark.long("extras/jobs/system/test_page.py::test_the_server_s_jobs_are_a_part_of_the_page")
def test_a_server_without_jobs_has_no_such_part(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    server = Server(tmp_path, ["add_sub", "identity_fp32"], frontends=())
    with server, Browser(tmp_path_factory.mktemp("browser")) as browser:
        browser.open(f"{server.url}/#/jobs")
        browser.wait_for("document.querySelector('#processes tbody tr') !== null")

        assert browser.evaluate(f"{LINK}.hidden") is True
        assert browser.evaluate("document.getElementById('overview').hidden") is False
        names = "performance.getEntriesByType('resource').map((entry) => entry.name)"
        assert browser.evaluate(f"{names}.some((name) => name.endsWith('jobs.js'))") is False
