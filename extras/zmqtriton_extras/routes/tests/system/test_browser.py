"""The page of the API in a real browser has the routes of models, and sends requests to them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.browser import Browser
from tests.support.server import Server
from zmqtriton_extras.routes.tests.system.test_routes import ROUTES, add_model

pytestmark = [
    pytest.mark.system,
    pytest.mark.long(
        "extras/routes/system/test_routes.py::test_each_route_is_described",
        "standard/cockpit/system/test_pages.py::test_the_description_is_read_and_tried",
    ),
]

#: The operation that is found by the search.
FOUND = "[...document.querySelectorAll('#operations details')].find((each) => !each.hidden)"


def test_a_route_is_found_and_tried(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    server = Server(tmp_path, [], options=["--routes"], frontends=())
    add_model(server, "ocr", ROUTES)
    with server, Browser(tmp_path_factory.mktemp("browser")) as browser:
        browser.open(f"{server.url}/docs")
        browser.wait_for("document.querySelectorAll('summary').length > 20")
        browser.fill("#search", "ocr.routes post echo")
        browser.wait_for("document.querySelector('#found').innerText.startsWith('1 of')")
        assert "/models/ocr/echo" in browser.evaluate(f"{FOUND}.innerText")

        browser.evaluate(f"{FOUND}.open = true")
        browser.wait_for(f"{FOUND}.querySelector('textarea') !== null")
        body = json.dumps({"a": [1]})
        browser.evaluate(
            f"(() => {{ const body = {FOUND}.querySelector('textarea'); body.value = '{body}';"
            "body.dispatchEvent(new Event('input')) })()"
        )
        browser.evaluate(f"{FOUND}.querySelector('button.main').click()")

        browser.wait_for(f"{FOUND}.querySelector('.state').innerText.includes('201')")
        assert '"a"' in browser.evaluate(f"{FOUND}.querySelector('form pre').innerText")
        assert browser.complaints == []
