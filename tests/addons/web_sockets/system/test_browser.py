"""A page in a real browser speaks to a model over a WebSocket."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.browser import Browser
from tests.support.server import Server

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

        assert "token0,token1,token2" == tokens
        assert browser.evaluate("answers[2].parameters.triton_final_response") is True
