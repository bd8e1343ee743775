"""The form of a function, on the server's page and on its own: files, pictures, streams."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.standard.cockpit.system.front_page import look_at, part
from tests.support import axe
from tests.support.browser import Browser
from tests.support.server import Server
from zmqtriton_extras.functions.tests.first_pages import FOLDER, PAGES

pytestmark = pytest.mark.system

SOURCE = '''
from collections.abc import Iterator
from typing import Literal, NamedTuple
import numpy as np
from zmqtriton import Audio, Image, model

class Answer(NamedTuple):
    picture: Image
    sound: Audio
    text: str

@model
def show(image: Image, words: int = 2, style: Literal["short", "long"] = "short") -> Answer:
    """Show what has come."""
    sound = Audio.of(np.sin(np.arange(800) / 8), 8000)
    return Answer(image, sound, f"{len(image.data)} {words} {style}")

@model
def tell(text: str) -> Iterator[str]:
    for word in text.split():
        yield word
    if text == "bad":
        raise ValueError("<b>no</b>")

class Odd(NamedTuple):
    number: float
    numbers: list[float]

@model
def odd(words: list[str] = ["a", "b"], table: dict[str, int] = {"x": 1}) -> Odd:
    """Answer <img src=x onerror=alert(1)>

    with what no JSON is."""
    return Odd(float("nan"), [1.0, float("-inf")])
'''
#: A model with streams, which go on until their clients leave.
STREAMS = """
import time
from zmqtriton import model

@model(streams=4)
class Drip:
    def admit(self, text: str) -> str:
        return text

    def step(self, states: list[str]) -> list[str]:
        time.sleep(0.02)
        return states
"""
#: A picture of one pixel.
DOT = "R0lGODlhAQABAIAAAAUEBAAAACwAAAAAAQABAAACAkQBADs="


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("page"), frontends=("metrics",))
    for name in ("show", "tell", "odd"):
        server.write_model(name, "", SOURCE)
    server.write_model("drip", "", STREAMS)
    for page in PAGES:
        server.write_model(page.model, "", (FOLDER / f"{page.file}.py").read_text())
    with server:
        yield server


@pytest.fixture
def browser(tmp_path: Path, server: Server) -> Iterator[Browser]:
    with Browser(tmp_path) as browser:
        browser.set_viewport(1280, 900)
        browser.open(f"{server.url}/")
        yield browser
        assert [] == browser.complaints


def choose(browser: Browser, model: str) -> None:
    look_at(browser, model)
    part(browser, "try")
    browser.wait_for(
        f"document.querySelector('#try form[aria-label=\"Arguments of {model}\"]') !== null"
    )


def run(browser: Browser) -> None:
    browser.click("button[title='Ctrl+Enter']")
    browser.wait_for("['good', 'bad'].includes(document.querySelector('form .state').dataset.kind)")


def shown(browser: Browser, what: str) -> list[str]:
    return browser.evaluate(
        f"[...document.querySelectorAll('.answer > {what}')].map((each) => each.innerText)"
    )


def test_a_picture_is_sent_as_a_file_and_shown_and_a_sound_is_played(browser: Browser) -> None:
    choose(browser, "show")
    assert "image/*" == browser.evaluate("document.querySelector('#try input[type=file]').accept")
    browser.evaluate(
        f"""(() => {{
            const bytes = Uint8Array.from(atob({json.dumps(DOT)}), (c) => c.charCodeAt(0));
            const file = new File([bytes], "dot.gif");
            const files = new DataTransfer();
            files.items.add(file);
            document.querySelector("#try input[type=file]").files = files.files;
            document.querySelector("#try select").value = "long";
        }})()"""
    )

    run(browser)

    assert (["picture", "sound", "text"], ["35 2 long"]) == (
        shown(browser, "h3"),
        shown(browser, "pre"),
    )
    browser.wait_for("document.querySelector('#try img').naturalWidth === 1")
    browser.wait_for("document.querySelector('#try audio').duration === 0.1")
    assert "-F 'image=@dot.gif'" in browser.evaluate(
        "document.querySelector('#try details pre').textContent"
    )


def test_a_stream_is_shown_as_it_comes_and_errors_are_text(browser: Browser) -> None:
    choose(browser, "tell")
    browser.evaluate("document.querySelector('#try textarea').value = 'a b'")
    run(browser)
    assert ["a", "b"] == shown(browser, "pre")

    browser.evaluate("document.querySelector('#try textarea').value = 'bad'")
    run(browser)
    assert ["bad", "ValueError: <b>no</b>"] == shown(browser, "pre")
    assert "bad" == browser.evaluate("document.querySelector('#try .state').dataset.kind")


def open_page(browser: Browser, server: Server, model: str) -> None:
    browser.open(f"{server.url}/{model}")
    browser.wait_for("document.querySelector('#call form') !== null")


def test_a_function_has_a_page_at_its_path(browser: Browser, server: Server) -> None:
    open_page(browser, server, "show")

    assert ("show", "show") == (browser.text("h1"), browser.evaluate("document.title"))
    assert "Show what has come." == browser.text("#call .about")
    answers = browser.evaluate("document.querySelector('#answers ul').innerText.split('\\n')")
    assert ["picture: a picture", "sound: a sound", "text: a text"] == answers
    # its example can be sent as it is, by keyboard
    browser.evaluate("document.querySelector('form').requestSubmit()")
    browser.wait_for("document.querySelector('form .state').dataset.kind === 'good'")
    assert ["70 2 short"] == shown(browser, "pre")
    browser.wait_for("document.querySelector('.answer img').naturalWidth === 1")
    command = browser.evaluate("document.querySelector('form details pre').textContent")
    assert f"curl -s '{server.url}/show' -F 'image=@example.png'" == command
    browser.fill("form [name=words]", "3")
    command = browser.evaluate("document.querySelector('form details pre').textContent")
    assert command.endswith("-F 'words=3'")
    schema = browser.evaluate("document.querySelector('#schemas pre').textContent")
    assert ["image"] == json.loads(schema)["required"]


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_is_dark_for_whom_likes_it(browser: Browser, server: Server, dark: bool) -> None:
    browser.set_viewport(400, 900, dark=dark)
    open_page(browser, server, "tell")

    ground = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert dark == (sum(map(int, re.findall(r"\d+", ground))) < 3 * 64)
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert ["output: a text, a stream of them"] == browser.evaluate(
        "[...document.querySelectorAll('#answers li')].map((each) => each.innerText)"
    )


def test_axe_finds_nothing(browser: Browser, server: Server) -> None:
    open_page(browser, server, "show")
    browser.evaluate("document.querySelector('form').requestSubmit()")
    browser.wait_for("document.querySelector('form .state').dataset.kind === 'good'")

    assert [] == axe.violations(browser)


def test_numbers_that_json_lacks_are_null_and_texts_are_no_html(
    browser: Browser, server: Server
) -> None:
    open_page(browser, server, "odd")
    assert "Answer <img src=x onerror=alert(1)>\n\nwith what no JSON is." == browser.text(".about")
    defaults = "[...document.querySelectorAll('textarea')].map((each) => each.placeholder)"
    assert ['["a","b"]', '{"x":1}'] == browser.evaluate(defaults)

    run(browser)

    assert (["number", "numbers"], ["null", "[1,null]"]) == (
        shown(browser, "h3"),
        shown(browser, "pre"),
    )

    # rows, as a model of another server may answer them
    rows = json.dumps('{"output": [{"a": "NaN", "b": NaN}, {"a": 2}]}')
    browser.evaluate(f"window.fetch = async () => new Response({rows})")
    run(browser)
    browser.wait_for("document.querySelector('.answer table') !== null")
    cells = "[...document.querySelectorAll('.answer tr')].map((row) => row.innerText)"
    assert ["a\tb", "NaN\tNaN", "2\t"] == browser.evaluate(cells)


def test_a_web_socket_streams_it(browser: Browser) -> None:
    browser.evaluate(
        """(() => {
            window.answers = [];
            const url = location.origin.replace("http", "ws") + "/v2/models/tell/stream";
            const socket = new WebSocket(url, "zmqtriton");
            socket.onmessage = (event) => answers.push(JSON.parse(event.data));
            const text = {name: "text", datatype: "BYTES", shape: [1], data: ["a b"]};
            socket.onopen = () => socket.send(JSON.stringify({id: "page", inputs: [text]}));
        })()"""
    )

    browser.wait_for("answers.length >= 2")
    assert "a,b" == browser.evaluate(
        "answers.flatMap((each) => each.outputs).map((each) => each.data[0]).join()"
    )


FILL = """(() => {
    for (const [name, value] of Object.entries(%s)) {
        const field = document.querySelector(`#try [name="${name}"]`);
        if (field.type !== "file") { field.value = value; continue; }
        const bytes = Uint8Array.from(atob(value), (c) => c.charCodeAt(0));
        const files = new DataTransfer();
        files.items.add(new File([bytes], "picture.bmp"));
        field.files = files.files;
    }
})()"""


def test_first_pages_of_other_systems_are_called_by_their_forms(browser: Browser) -> None:
    for page in PAGES:
        choose(browser, page.model)
        values = {n: v if isinstance(v, str) else json.dumps(v) for n, v in page.document().items()}
        browser.evaluate(FILL % json.dumps(values))

        run(browser)

        if isinstance(page.answer.get("output", b""), bytes) and len(page.answer) < 2:
            file = "#try .answer img, #try .answer a[download]"
            assert 1 == browser.evaluate(f"document.querySelectorAll('{file}').length"), page.model
        elif isinstance(page.answer.get("output"), list) and isinstance(
            page.answer["output"][0], dict
        ):
            cells = (
                "[...document.querySelectorAll('#try .answer table td')].map((e) => e.innerText)"
            )
            shown_rows = [str(v) for row in page.answer["output"] for v in row.values()]
            assert shown_rows == browser.evaluate(cells)
        else:
            texts = [v if isinstance(v, str) else compact(v) for v in page.answer.values()]
            assert texts == shown(browser, "pre")


def compact(value: object) -> str:
    """A value as JavaScript writes it."""
    return json.dumps(value, separators=(",", ":")).replace(".0", "")


def test_the_page_shows_streams_and_steps(browser: Browser, server: Server) -> None:
    body = json.dumps({"text": "drop"}).encode()
    address = f"{server.url}/drip"
    rows = "[...document.querySelectorAll('#figures tr')].map((row) => row.innerText)"
    look_at(browser, "drip")
    with urlopen(address, body, timeout=60) as one, urlopen(address, body, timeout=60) as other:
        assert b"drop" in one.readline()
        assert b"drop" in other.readline()

        for text in (
            "streams state open\\t2\\tStreams by state",
            "streams_step_size\\t2 on average, ",
            "streams_step_seconds\\t0.02",
            "streams_first_seconds\\t0.",
            "streams_pieces_total\\t",
        ):
            browser.wait_for(f"{rows}.some((row) => row.startsWith('{text}'))")
    browser.wait_for(f"{rows}.some((row) => row.startsWith('streams state open\\t0\\t'))")

    look_at(browser, "tell")
    browser.wait_for("document.querySelector('#figures').hidden")
