"""The pages in a real browser, over a real server: what people see, and what must not run."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.standard.cockpit.system.front_page import (
    DRAWN,
    LOOK,
    SAID,
    choose,
    choose_chat,
    look_at,
    newest,
    only_pid,
    part,
    press,
    reason,
    row,
    run,
    say,
    shown,
    state,
)
from tests.support import axe
from tests.support.browser import Browser
from tests.support.needs import find_tool
from tests.support.server import DEMO_MODELS, Server, ask_add_sub
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

LOADED = "import os\nprint('loaded by', os.getpid())\n"
#: Runs where text becomes HTML.
HTML = "<img src=x onerror=document.title='hacked'>"
NAMED = "a<b onmouseover=alert(1)>&amp;"

CONFIG = """
backend: "python"
input [ { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "ECHO" data_type: TYPE_STRING dims: [ 1 ] } ]
"""
REFUSING = f"""
class TritonPythonModel:
    def initialize(self, args):
        raise RuntimeError({HTML!r} + " needs weights" + " that are not there" * 20)
"""
#: Starts as long as its file is there, so that a test decides whether it comes back.
BOUND = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        open({file!r}).close()

    def execute(self, requests):
        tensors = [pb_utils.get_input_tensor_by_name(request, "TEXT") for request in requests]
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("ECHO", tensor.as_numpy())])
            for tensor in tensors
        ]
"""


def write_model(directory: Path, name: str, code: str, datatype: str = "TYPE_STRING") -> Path:
    model = directory / name
    (model / "1").mkdir(parents=True)
    (model / "1" / "model.py").write_text(code, "utf-8")
    (model / "config.pbtxt").write_text(CONFIG.replace("TYPE_STRING", datatype), "utf-8")
    return model


@pytest.fixture(scope="module")
def bond(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("bond") / "file"
    file.touch()
    return file


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, bond: Path) -> Iterator[Server]:
    source = tmp_path_factory.mktemp("models")
    models: list[str | Path] = [
        "add_sub",
        "parrot",
        "string_upper",
        DEMO_MODELS / "tokens",
        write_model(source, "integers", BOUND.format(file=str(bond)), "TYPE_INT64"),
        write_model(source, "refusing", REFUSING),
        write_model(source, "bound", BOUND.format(file=str(bond))),
        write_model(source, NAMED, BOUND.format(file=str(bond))),
        # From nine models on there is a filter.
        write_model(source, "team1_customer_churn_predictor_v1", "import nothing_of_this_name"),
        write_model(source, "team2_customer_churn_predictor_v2", "import nothing_of_this_name"),
    ]
    options = [
        "--model-control-mode=explicit",
        "--load-model=*",
        "--exit-on-error=false",
        "--strict-readiness=false",
        "--allow-openai",
    ]
    running = Server(tmp_path_factory.mktemp("server"), models, options=options)
    code = running.repository / "add_sub" / "1" / "model.py"
    code.write_text(LOADED + code.read_text())
    with running:
        assert 200 == ask_add_sub(running)  # a sample has it when plots are looked at
        yield running


def post(server: Server, path: str) -> None:
    with urllib.request.urlopen(f"{server.url}{path}", data=b"{}", timeout=60) as answer:
        assert 200 == answer.status


@pytest.mark.long("standard/cockpit/system/test_pages.py::test_models_are_shown_with_their_states")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "unavail",
            [
                "refusing",
                "team1_customer_churn_predictor_v1",
                "team2_customer_churn_predictor_v2",
            ],
        ),
        ("add_", ["add_sub"]),
        ("nobody", []),
    ],
)
def test_models_are_found_by_name_and_by_state(
    browser: Browser, text: str, expected: list[str]
) -> None:
    browser.fill("#filter", text)

    assert expected == shown(browser)


def test_models_are_shown_with_their_states(browser: Browser) -> None:
    assert "READY" == browser.evaluate(state("add_sub"))
    assert "v1" in browser.evaluate(f"{row('add_sub')}.innerText")
    assert "UNAVAILABLE" == browser.evaluate(state("refusing"))
    assert "7 ready · 3 failed" == browser.text("#summary")
    assert "ready" == browser.text("#ready")


def test_what_is_not_ours_is_text_and_readable_in_full(browser: Browser) -> None:
    # A reason, a name, and below an output.
    shown = browser.evaluate(reason("refusing"))
    choose(browser, NAMED)
    browser.fill("#try textarea:not([aria-label=Message])", HTML)

    assert HTML + " needs weights" + " that are not there" * 20 in " ".join(shown.split())
    assert [HTML] == run(browser)
    assert f"Try {NAMED}" == browser.text("#try-title")
    assert "triton" == browser.evaluate("document.title")
    assert 0 == browser.evaluate(
        "document.querySelectorAll('img:not(#profile img), b, [onmouseover]').length"
    )


def test_a_model_is_tried_with_what_the_form_proposes(browser: Browser) -> None:
    choose(browser, "add_sub")
    browser.fill("#try .field:nth-of-type(1) textarea", "10")

    total, difference = run(browser)

    assert [10.0 + n for n in range(16)] == json.loads(total)
    assert [10.0 - n for n in range(16)] == json.loads(difference)
    assert 2 == len(
        browser.evaluate("[...document.querySelectorAll('#try details pre')].map(String)")
    )

    # When a value is none
    wrong = "#try .field:nth-of-type(2)"
    browser.fill(f"{wrong} textarea", "[1, 2")
    run(browser, "Not sent")

    # Then that is said once, at its field and not beside the button too
    assert "Not sent." == browser.text("#try .actions .state")
    assert "JSON array" in browser.text(f"{wrong} .wrong")
    assert "true" == browser.evaluate("document.activeElement.getAttribute('aria-invalid')")
    assert browser.evaluate(
        f"document.querySelector('{wrong} textarea') === document.activeElement"
    )

    # When the server refuses it, then in its words
    browser.fill(f"{wrong} .shape input", "[1, 3]")
    browser.fill(f"{wrong} textarea", "[1, 2, 3]")
    [refusal] = run(browser, "400")
    assert "for model 'add_sub'" in refusal


@pytest.mark.long(
    "standard/cockpit/system/test_pages.py::test_a_model_is_tried_with_what_the_form_proposes"
)
@pytest.mark.parametrize(
    ("typed", "shape", "expected"),
    [
        ("one\ntwo\nthree", "[1, 3]", "ONE\nTWO\nTHREE"),
        (f"{HTML}\n\"'", "[1, 2]", f"{HTML.upper()}\n\"'"),
    ],
)
def test_strings_are_one_a_line(browser: Browser, typed: str, shape: str, expected: str) -> None:
    choose(browser, "string_upper")
    browser.fill("#try textarea:not([aria-label=Message])", typed)

    assert shape == browser.evaluate("document.querySelector('#try .shape input').placeholder")
    assert [expected] == run(browser)


def test_a_stream_is_shown_as_it_comes_and_can_be_stopped(browser: Browser) -> None:
    # Given a model that waits before each word but the first
    choose(browser, "tokens")
    browser.fill("#try .field:nth-of-type(1) textarea", "ever so many words " * 25)
    browser.click("#try .field input[type=checkbox]")
    browser.fill("#try .field:nth-of-type(2) textarea", "300")

    # When it has said the first
    browser.click("#try button[title='Ctrl+Enter']")
    first = browser.wait_for("document.querySelector('#try .events li').innerText")
    browser.click("#try .actions button[type=button]")

    # Then that is there, the rest is not, and another request may be made
    browser.wait_for("document.querySelector('#try .state').innerText.startsWith('stopped')")
    assert '"ever"' in first
    assert 100 > browser.evaluate("document.querySelectorAll('#try .events li').length")
    browser.fill("#try .field:nth-of-type(2) textarea", "0")
    run(browser, "WebSocket · 100 responses")
    assert ['"ever"', '"so"', '"many"', '"words"'] * 25 == _words(browser)

    # Also where no socket opens
    browser.evaluate("window.WebSocket = undefined; 0")
    run(browser)
    assert ['"ever"', '"so"', '"many"', '"words"'] * 25 == _words(browser)


def _words(browser: Browser) -> list[str]:
    """Return the tokens of the responses that are shown."""
    script = "[...document.querySelectorAll('#try .events span')].map((span) => span.innerText)"
    events: list[str] = browser.evaluate(script)
    return [word for event in events for word in event.split() if word.startswith('"')]


@pytest.mark.long(
    "standard/cockpit/system/test_pages.py::test_a_model_is_tried_with_what_the_form_proposes"
)
def test_large_integers_are_sent_as_they_were_typed(browser: Browser) -> None:
    choose(browser, "integers")
    browser.fill("#try textarea:not([aria-label=Message])", "[9007199254740993]")

    run(browser)

    # JavaScript rounds it where it reads the answer; the answer's text is shown beside it.
    answer = browser.evaluate("document.querySelector('#try details pre.box').textContent")
    assert '"data":[9007199254740993]' in answer


def test_an_answer_comes_word_by_word_and_the_chat_goes_on(browser: Browser) -> None:
    choose_chat(browser)
    say(browser, "two words")
    browser.wait_for(f'JSON.stringify({SAID}.at(-1)) === \'["assistant","two words"]\'')

    say(browser, "and more")

    browser.wait_for(f"{SAID}.length === 4 && {SAID}.at(-1)[1] === 'and more'")
    browser.click("#try .actions button:not([hidden]):last-of-type")
    assert [] == browser.evaluate(SAID)
    choose(browser, "add_sub")
    assert browser.evaluate("document.querySelector('.chat')") is None


def test_requests_show_in_the_plots_and_nothing_moves(browser: Browser, server: Server) -> None:
    # Given a model that is looked at, with its plots drawn
    look_at(browser, "add_sub")
    assert 200 == ask_add_sub(server)
    answered = newest("Requests per second", "answered")
    browser.wait_for(f"({LOOK}, {answered} !== '–' && {DRAWN})")
    browser.evaluate(
        "void new PerformanceObserver((list) => list.getEntries().forEach((shift) => "
        "{ window.moved = (window.moved ?? 0) + shift.value; })).observe({type: 'layout-shift'})"
    )

    # When it answers requests
    def rate() -> float:
        assert 200 == ask_add_sub(server)
        text = browser.evaluate(f"({LOOK}, {answered})")
        return 0.0 if text == "–" else float(text.replace(",", ""))

    eventually(lambda: rate() > 0.5, 60, "the rate goes up")

    # Then the plots, the tiles and the table have them, and all stands where it was
    for figure in (
        f"Number({newest('Latency in milliseconds', 'p99')}) > 0",
        f"{newest('Mean batch size', 'requests')} === '1'",
        "Number(document.querySelector('#rate').textContent) > 0",
        f"Number({row('add_sub')}.children[2].textContent) > 0",
    ):
        # what is asked no more has no rate, and a page of a busy machine comes late
        eventually(lambda shown=figure: rate() and browser.evaluate(shown), 60, figure)  # type: ignore[misc]
    assert 0.05 > browser.evaluate("window.moved ?? 0")


def test_a_model_is_restarted_unloaded_and_loaded_by_buttons(
    browser: Browser, server: Server
) -> None:
    look_at(browser, "add_sub")
    pid = only_pid(server, "add_sub")

    # When somebody is asked first, and says no
    press(browser, "Restart")
    assert "Restart the processes of add_sub?" in browser.text("#confirm")
    browser.press("Escape", 27)
    browser.wait_for("!document.querySelector('#confirm').open")
    assert [pid] == server.stub_pids("add_sub")

    # Then nothing happens until they say yes
    press(browser, "Restart")
    browser.click("#confirm [value=yes]")
    eventually(lambda: server.stub_pids("add_sub") not in ([], [pid]), 60, "another process")
    browser.wait_for(f"{state('add_sub')} === 'READY'")

    # And its log is followed meanwhile
    part(browser, "logs")
    lines = "document.querySelector('#logs ol').innerText"
    browser.wait_for(f"({lines}.match(/loaded by/g) ?? []).length > 1")
    assert "string_upper" not in browser.evaluate(lines)
    # The longest level has room in one line.
    level = "document.querySelector('#logs li .level')"
    height = browser.evaluate(f"{level}.clientHeight")
    assert height == browser.evaluate(f"({level}.textContent = 'warning', {level}.clientHeight)")
    browser.click("#logs [name=severe]")
    assert "loaded by" not in browser.evaluate(lines)

    part(browser, "overview")
    press(browser, "Unload")
    browser.click("#confirm [value=yes]")
    # A restart and an unload that is under way have the one or the other.
    browser.wait_for(
        f"{state('add_sub')} === 'UNAVAILABLE' && "
        "document.querySelector('#detail-reason').innerText === 'unloaded'"
    )
    press(browser, "Load")
    browser.wait_for(f"{state('add_sub')} === 'READY'")


def test_a_process_that_cannot_come_back_shows_up(
    browser: Browser, server: Server, bond: Path
) -> None:
    # Given a model that needs its file to start
    bond.unlink()

    # When its process is killed
    [pid] = server.stub_pids("bound")
    os.kill(pid, signal.SIGKILL)

    # Then the page tells why it does not come back, until it does
    browser.wait_for(f"{state('bound')} === 'UNAVAILABLE'")
    browser.wait_for(f"/restart|given up|FileNotFound|No such file/.test({reason('bound')})")
    bond.touch()
    post(server, "/v2/repository/models/bound/load")
    browser.wait_for(f"{state('bound')} === 'READY'")


@pytest.mark.long(
    "standard/cockpit/system/test_pages.py::test_a_process_that_cannot_come_back_shows_up"
)
def test_a_server_that_is_gone_is_missed_and_found_again(chromium: Browser, tmp_path: Path) -> None:
    chromium.complaints.clear()
    with Server(tmp_path, ["add_sub"], frontends=("metrics",)) as server:
        # Given a page that is in step with its server
        chromium.open(f"{server.url}/")
        chromium.wait_for(f"{state('add_sub')} === 'READY'")
        assert chromium.evaluate("document.querySelector('#alarm').hidden")
        part(chromium, "logs")
        loads = "document.querySelector('#logs').innerText.match(/successfully loaded/g).length"
        chromium.wait_for(f"{loads} === 1")

        # When the server ends
        server.stop()

        # Then the page says so, and what was known stays
        chromium.wait_for("document.querySelector('#alarm').innerText.includes('does not answer')")
        assert "gone" == chromium.text("#ready")
        assert "READY" == chromium.evaluate(state("add_sub"))
        assert "alert" == chromium.evaluate("document.querySelector('#alarm').getAttribute('role')")

        # And when it is back, so is the page
        server.process = None
        server.start()
        chromium.wait_for("document.querySelector('#alarm').hidden")
        chromium.wait_for("document.querySelector('#ready').innerText === 'ready'")
        # with the log from its beginning, behind what there was before
        chromium.wait_for(f"{loads} === 2")
        chromium.open("about:blank")
    assert [] == chromium.complaints


@pytest.mark.long("standard/cockpit/system/test_pages.py::test_models_are_shown_with_their_states")
def test_a_server_without_models_says_what_to_do(chromium: Browser, tmp_path: Path) -> None:
    chromium.complaints.clear()
    with Server(tmp_path, frontends=("metrics",)) as server:
        chromium.open(f"{server.url}/")

        assert "no models yet" in chromium.wait_for("document.querySelector('#empty').innerText")
        assert chromium.evaluate("document.querySelector('#try').hidden")
        chromium.open("about:blank")
    assert [] == chromium.complaints


@pytest.mark.parametrize(
    ("width", "dark"),
    [
        (420, False),
        pytest.param(
            1280,
            True,
            marks=pytest.mark.long(
                "standard/cockpit/system/test_pages.py::test_it_fits_its_window_and_its_owners_colours"
            ),
        ),
    ],
)
def test_it_fits_its_window_and_its_owners_colours(
    browser: Browser, tmp_path: Path, width: int, dark: bool
) -> None:
    choose(browser, "add_sub")
    run(browser)

    browser.set_viewport(width, 900, dark=dark)
    picture = browser.screenshot(tmp_path / "page.png")

    script = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    brightness = sum(browser.evaluate(script)) / 3
    assert (brightness < 64) == dark
    assert width == browser.evaluate("document.documentElement.scrollWidth")
    assert width == struct.unpack(">I", picture[16:20])[0]
    # What is blank is packed into a tenth of it.
    assert len(picture) > 30_000
    assert [] == axe.violations(browser)


@pytest.mark.parametrize("place", ["", "docs"])
@pytest.mark.parametrize(("width", "dark"), [(1280, True), (400, False)])
@pytest.mark.long(
    "standard/cockpit/system/test_pages.py::test_it_fits_its_window_and_its_owners_colours"
)
def test_axe_finds_nothing_in_any_colours(
    browser: Browser, server: Server, place: str, width: int, dark: bool
) -> None:
    browser.set_viewport(width, 900, dark=dark)
    browser.open(f"{server.url}/{place}")
    browser.wait_for("document.querySelectorAll('#rows tr, summary').length > 8")
    faults = axe.violations(browser)
    if not place:
        look_at(browser, "refusing")
        for name in ("overview", "logs", "try"):
            browser.click(f"[data-part={name}]")
            faults += axe.violations(browser)

    assert [] == faults


@pytest.mark.long(
    "standard/cockpit/system/test_pages.py::test_it_fits_its_window_and_its_owners_colours"
)
def test_everything_that_can_be_used_has_a_name_and_is_reached_by_keyboard(
    browser: Browser,
) -> None:
    choose(browser, "tokens")
    used = {"link", "button", "textbox", "checkbox", "searchbox", "DisclosureTriangle"}

    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    controls: list[dict[str, Any]] = [n for n in nodes if n.get("role", {}).get("value") in used]
    browser.evaluate("document.activeElement.blur(); document.body.focus(); reached = new Set()")
    for _ in range(40):
        browser.press("Tab", 9)
        # By identity: what a tile says may change meanwhile.
        browser.evaluate("reached.add(document.activeElement) && null")

    assert len(controls) > 10
    assert [] == [node for node in controls if not node["name"]["value"].strip()]
    missed = browser.evaluate(
        "[...document.querySelectorAll('a, button, input, textarea, summary')]"
        ".filter((e) => e.checkVisibility() && !e.disabled && !reached.has(e))"
        ".map((e) => e.outerHTML)"
    )
    assert [] == missed


@pytest.mark.long(
    "standard/cockpit/system/test_pages.py::test_a_model_is_tried_with_what_the_form_proposes"
)
def test_the_keyboard_alone_runs_a_model(browser: Browser) -> None:
    choose(browser, "string_upper")
    browser.fill("#try textarea:not([aria-label=Message])", "typed")

    browser.press("Enter", 13, modifiers=2)

    browser.wait_for("document.querySelector('#try .answer .box').innerText === 'TYPED'")


def test_the_description_is_read_and_tried(browser: Browser, server: Server) -> None:
    find_tool("curl")
    # Given the page, whose first operation is an inference
    browser.open(f"{server.url}/docs")
    browser.wait_for("document.querySelectorAll('summary').length > 20")
    assert "/v2/models/{model}/infer" == browser.text("summary code")

    # When somebody opens it, chooses a model and sends its example
    browser.click("summary")
    browser.wait_for("document.querySelector('.operation select') !== null")
    browser.evaluate(
        "(() => { const models = document.querySelector('.operation select');"
        f"models.value = {json.dumps(NAMED)}; models.dispatchEvent(new Event('input')) }})()"
    )
    browser.click(".operation button.main")
    browser.wait_for("document.querySelector('.operation .state').innerText.includes('200 OK')")

    # Then the answer is there, and one example in one language, which is the one that runs
    assert "ECHO" in browser.text(".operation form pre")
    for number, language in enumerate(("curl", "Python", "gRPC")):
        browser.evaluate(f"document.querySelectorAll('.tabs button')[{number}].click()")
        assert language == browser.text(".tabs [aria-selected=true]")
        code = browser.text(".codes pre")
        assert answer_of(code, is_python=language != "curl").count("ECHO") == 1, code

    browser.fill("#search", "post DRAIN model")
    browser.wait_for("document.querySelector('#found').innerText.startsWith('2 of')")
    for width, dark in ((1280, False), (420, True)):
        browser.set_viewport(width, 900, dark=dark)
        assert width == browser.evaluate("document.documentElement.scrollWidth")


def answer_of(code: str, *, is_python: bool) -> str:
    command = [sys.executable, "-c", code] if is_python else ["sh", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def test_what_the_policy_refuses_is_seen_by_these_tests(browser: Browser) -> None:
    browser.evaluate(
        "document.head.append(Object.assign(document.createElement('style'), "
        "{textContent: 'body { display: none }'}))"
    )

    browser.wait_for("true")
    [complaint] = browser.complaints
    browser.complaints.clear()

    assert "Content Security Policy" in complaint
    assert "none" != browser.evaluate("getComputedStyle(document.body).display")
