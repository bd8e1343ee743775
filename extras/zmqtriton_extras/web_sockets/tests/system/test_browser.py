"""A page in a real browser speaks to a model over a WebSocket."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.standard.cockpit.system.front_page import choose
from tests.support.browser import Browser
from tests.support.journal import read_journal
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

ASK = """
window.answers = [];
const url = location.origin.replace("http", "ws") + "/v2/models/tokens/stream";
const socket = new WebSocket(url, "zmqtriton");
socket.onmessage = (event) => answers.push(JSON.parse(event.data));
socket.onopen = () => socket.send(JSON.stringify({id: "page", inputs: [
  {name: "COUNT", datatype: "INT32", shape: [1], data: [3]}]}));
0
"""


@pytest.mark.long(
    "extras/web_sockets/system/test_streams.py::test_streams_of_one_connection_come_side_by_side_and_whole",
    "extras/web_sockets/system/test_streams.py::test_a_page_of_the_same_origin_is_let_in",
)
def test_a_page_of_the_server_streams_from_a_model(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with (
        Server(tmp_path, models=["tokens"], frontends=()) as server,
        Browser(tmp_path_factory.mktemp("browser")) as browser,
    ):
        browser.open(f"{server.url}/")
        browser.evaluate(ASK)
        browser.wait_for("answers.length === 3")
        tokens = browser.evaluate("answers.map((answer) => answer.outputs[0].data[0]).join()")

        assert tokens == "token0,token1,token2"
        assert browser.evaluate("answers[2].parameters.triton_final_response") is True

        # The form of the model does so, too: what is stopped is cancelled, and the rest not shown
        choose(browser, "tokens")
        browser.fill("#try .field:nth-of-type(1) textarea", "1000000")
        browser.click("#try .field input[type=checkbox]")
        browser.fill("#try .field:nth-of-type(2) textarea", "1000")
        browser.click("#try button[title='Ctrl+Enter']")
        browser.wait_for("document.querySelectorAll('#try .events li').length > 3")
        browser.click("#try .actions button[type=button]")
        browser.wait_for("document.querySelector('#try .state').innerText.startsWith('stopped')")
        eventually(lambda: ("cancelled", "page") in _events(server), 30)

        # An error is its response
        browser.fill("#try .field:nth-of-type(1) textarea", "[1, 2]")
        browser.click("#try button[title='Ctrl+Enter']")
        error = browser.wait_for("document.querySelector('#try .events .wrong')?.innerText")
        assert "shape" in error
        assert browser.complaints == []


def _events(server: Server) -> list[tuple[str, str]]:
    return [(entry.event, entry.id) for entry in read_journal(server.journal)]
