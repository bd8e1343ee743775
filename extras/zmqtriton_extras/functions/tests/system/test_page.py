"""The form of a function, on the server's page and on its own: files, pictures, streams."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

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

@model(examples=[{"text": "a b"}, {"text": "bad"}])
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

class Span(NamedTuple):
    numbers: list[float]
    more: list[float]
    facts: dict[str, str]

@model
def lines(low: float, flags: list[bool] = [True]) -> Span:
    return Span([low, 2.0, 3.0], [3.0, 2.0, 1.0], {"name": "<b>"})

class Piece(NamedTuple):
    output: str
    reason: str | None = None

@model
def pieces(count: int) -> Iterator[Piece]:
    for n in range(count):
        yield Piece(f"{n} ")
    yield Piece("", "stop")

@model
def rows(count: int) -> Iterator[dict[str, int]]:
    yield from ({"n": n, "square": n * n} for n in range(count))
'''
#: A model of tensors, which counts the ink of a picture.
INK = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        pictures = [pb_utils.get_input_tensor_by_name(each, "PICTURE") for each in requests]
        arrays = [picture.as_numpy() for picture in pictures]
        inks = [np.array([*each.shape, each.sum()], np.int64) for each in arrays]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("INK", each)]) for each in inks]
"""
INK_CONFIG = """
backend: "python"
input [ { name: "PICTURE", data_type: TYPE_UINT8, dims: [ -1, -1 ] } ]
output [ { name: "INK", data_type: TYPE_INT64, dims: [ 3 ] } ]
"""
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
    for name in ("show", "tell", "odd", "lines", "rows", "pieces"):
        server.write_model(name, "", SOURCE)
    server.write_model("ink", INK_CONFIG, INK)
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
    assert ["a", "b"] == shown(browser, "pre > span")

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


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (400, True)])
@pytest.mark.parametrize("name", ["show", "lines", "rows", "ink"])
def test_axe_finds_nothing(
    browser: Browser, server: Server, name: str, width: int, dark: bool
) -> None:
    browser.set_viewport(width, 900, dark=dark)
    open_page(browser, server, name)
    send(browser)
    browser.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true })")

    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert [] == axe.violations(browser)


def send(browser: Browser) -> None:
    browser.evaluate("document.querySelector('#call form').requestSubmit()")
    browser.wait_for("document.querySelector('#call .state').dataset.kind === 'good'")


def code(browser: Browser, title: str) -> str:
    folds = "[...document.querySelectorAll('#call details')]"
    found = f"{folds}.find((each) => each.innerText.startsWith({json.dumps(title)}))"
    return str(browser.evaluate(f"{found}.querySelector('pre').textContent"))


def run_python(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def test_an_example_is_pressed_and_its_code_does_the_same(browser: Browser, server: Server) -> None:
    open_page(browser, server, "tell")
    buttons = "[...document.querySelectorAll('.examples button')]"
    assert ["a b", "bad"] == browser.evaluate(f"{buttons}.map((each) => each.innerText)")
    assert "a b" == browser.evaluate("document.querySelector('textarea').value")
    browser.evaluate(f"{buttons}[1].click()")
    assert "bad" == browser.evaluate("document.querySelector('textarea').value")
    browser.fill("textarea", 'it\'s "so"')

    send(browser)

    assert ["it's", '"so"'] == shown(browser, "pre > span")
    expected = 'data: {"output":"it\'s"}\n\ndata: {"output":"\\"so\\""}\n\n'
    assert expected == run_python(code(browser, "The same in Python"))
    curl = ["sh", "-c", code(browser, "The same with curl")]
    assert expected == subprocess.run(curl, capture_output=True, text=True, check=True).stdout


def test_lists_are_drawn_and_objects_are_tables(browser: Browser, server: Server) -> None:
    open_page(browser, server, "lines")
    browser.fill("form [name=low]", "-1e3")
    browser.fill("form [name=flags]", "[true, false]")

    send(browser)

    label = "document.querySelector('.answer svg').getAttribute('aria-label')"
    assert "numbers, more: from -1000 to 3" == browser.evaluate(label)
    assert 2 == browser.evaluate("document.querySelectorAll('.answer polyline').length")
    assert "name\n<b>" == browser.text(".answer table")
    python = code(browser, "The same in Python")
    assert '"flags": [True, False],' in python
    assert [-1000.0, 2.0, 3.0] == json.loads(run_python(python))["numbers"]


def test_objects_of_a_stream_are_rows_of_one_table(browser: Browser, server: Server) -> None:
    open_page(browser, server, "rows")
    browser.fill("form [name=count]", "3")

    send(browser)

    cells = "[...document.querySelectorAll('.answer tr')].map((row) => row.innerText)"
    assert ["n\tsquare", "0\t0", "1\t1", "2\t4"] == browser.evaluate(cells)


def test_another_output_of_a_stream_does_not_continue_the_text(
    browser: Browser, server: Server
) -> None:
    open_page(browser, server, "pieces")
    browser.fill("form [name=count]", "3")

    send(browser)

    assert ["0 1 2 ", "stop"] == shown(browser, "pre")
    assert ["reason"] == shown(browser, "h3")


def test_a_model_of_tensors_has_a_page_and_reads_a_picture(
    browser: Browser, server: Server
) -> None:
    open_page(browser, server, "ink")
    browser.wait_for("document.querySelector('#figures').hash === '#ink/1/overview'")
    browser.evaluate(
        f"""(() => {{
            const bytes = Uint8Array.from(atob({json.dumps(DOT)}), (c) => c.charCodeAt(0));
            const files = new DataTransfer();
            files.items.add(new File([bytes], "dot.gif", {{type: "image/gif"}}));
            const input = document.querySelector("#call input[type=file]");
            input.files = files.files;
            input.dispatchEvent(new Event("change"));
        }})()"""
    )
    browser.wait_for("document.querySelector('#call textarea').value === '[[4]]'")

    send(browser)

    assert ["[1, 1, 4]"] == shown(browser, "pre")
    assert "INK [1 1 4]\n" == run_python(code(browser, "The same in Python"))
    browser.click("#figures")
    browser.wait_for("document.querySelector('#detail-title')?.innerText === 'ink'")


@pytest.mark.parametrize(
    ("path", "accept", "status"),
    [
        ("ink", "text/html", 200),
        ("ink", "application/json", 404),
        ("inks", "text/html", 404),
        ("odd", "application/json, text/html;q=0.1", 0),
        ("odd", "text/html;q=0, */*", 0),
    ],
)
def test_pages_are_for_browsers_and_for_models(
    server: Server, path: str, accept: str, status: int
) -> None:
    request = Request(f"{server.url}/{path}", headers={"Accept": accept})
    try:
        response = urlopen(request, timeout=60)
    except HTTPError as error:
        response = error
    with response:
        policy = response.headers.get("Content-Security-Policy", "")

    assert (status or 200, status == 200) == (
        response.status,
        policy.startswith("default-src 'none'"),
    )


def test_a_chat_is_shown_as_code_for_openai_s_client(browser: Browser, tmp_path: Path) -> None:
    pytest.importorskip("openai")
    server = Server(tmp_path, frontends=(), options=["--allow-openai"])
    server.write_model("tell", "", SOURCE)
    with server:
        open_page(browser, server, "tell")
        browser.wait_for("document.querySelector('#chat form') !== null")
        code_of_chat = code(browser, "The same with OpenAI")

        assert "ab" == run_python(code_of_chat)
        browser.open("about:blank")


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

        rows = page.answer.get("output")
        if len(page.answer) < 2 and isinstance(rows, (bytes, type(None))):
            file = "#try .answer img, #try .answer a[download]"
            assert 1 == browser.evaluate(f"document.querySelectorAll('{file}').length"), page.model
            continue
        rows = rows if isinstance(rows, list) else [rows]
        if all(isinstance(row, dict) for row in rows):
            cells = (
                "[...document.querySelectorAll('#try .answer table td')].map((e) => e.innerText)"
            )
            shown_rows = [str(v) for row in rows for v in row.values()]
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
