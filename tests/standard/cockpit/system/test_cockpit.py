"""The front page as those use it who run a server: processes, plots, logs and buttons."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.standard.cockpit.system.front_page import (
    DRAWN,
    LOOK,
    change_status,
    look_at,
    newest,
    press,
    row,
    shown,
    state,
    wait_for_a_look,
)
from tests.support.browser import Browser
from tests.support.server import Server, ask_add_sub
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.system,
    pytest.mark.long(
        "standard/cockpit/system/test_pages.py::test_models_are_shown_with_their_states",
        "standard/cockpit/system/test_pages.py::test_requests_show_in_the_plots_and_nothing_moves",
        "standard/cockpit/system/test_pages.py::test_a_model_is_restarted_unloaded_and_loaded_by_buttons",
    ),
]

LOADED = "import os\nprint('loaded by', os.getpid())\n"
ASLEEP = 200
#: The time of a full minute, in seconds since 1970: 15:15 in India.
END_S = 1795340700


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two models that are loaded, and many that the next request loads."""
    options = [
        "--model-control-mode=explicit",
        "--load-model=add_sub",
        "--load-model=tokens",
        "--load-on-demand",
    ]
    directory, models = tmp_path_factory.mktemp("server"), ["add_sub", "tokens"]
    running = Server(directory, models, options=options, frontends=("metrics",))
    code = running.repository / "add_sub" / "1" / "model.py"
    code.write_text(LOADED + code.read_text())
    for number in range(ASLEEP):
        running.add_model("string_upper", f"model_{number:03}")
    with running:
        assert 200 == ask_add_sub(running)  # a sample has it when plots are looked at
        yield running


def test_the_tiles_add_up_all_models_and_leave_out_what_is_not_known(browser: Browser) -> None:
    change_status(
        browser,
        "status.models.forEach((model, at) => { model.requests_per_s = at % 2 ? 3 : null;"
        " model.failures_per_s = null; model.pending = 2; });"
        "status.processes = [{role: 'broker', cpu_percent: 12, memory_bytes: 1048576},"
        " {role: 'http', cpu_percent: 8, memory_bytes: null}]",
    )

    browser.wait_for(f"{_tile('waiting')} === '{2 * (ASLEEP + 2)}'")
    expected = [str(3 * ((ASLEEP + 2) // 2)), "–", "20 %", "1 MiB"]
    assert expected == [
        browser.evaluate(_tile(name)) for name in ("rate", "failures", "cpu", "memory")
    ]


def test_what_the_machine_is_short_of_stands_above_all(browser: Browser) -> None:
    shown = "document.querySelector('#machine')"
    change_status(browser, "status.machine = [{text: 'other programs take 70 %'}, {text: 'b'}]")
    browser.wait_for(f"!{shown}.hidden && {shown}.innerText === 'other programs take 70 %; b'")

    change_status(browser, "status.machine = []")
    browser.wait_for(f"{shown}.hidden")


def _tile(name: str) -> str:
    return f"document.querySelector('#{name}').textContent"


def test_an_answer_that_cannot_be_shown_does_not_end_the_page(browser: Browser) -> None:
    change_status(browser, "status.models = [{}]")
    eventually(lambda: browser.evaluate("1") and browser.complaints, 30, "it cannot be shown")
    change_status(browser, "status.models[0].state = 'ODD'")

    browser.wait_for("document.querySelector('#rows .state').textContent === 'ODD'")
    assert all("TypeError" in complaint for complaint in browser.complaints)
    browser.complaints.clear()


def test_what_instances_share_or_might_is_told(browser: Browser) -> None:
    hint = "document.querySelector('#processes-unseen')"
    twice = (
        "const stub = status.processes.find((process) => process.model === 'tokens');"
        " stub.memory_bytes = 800 * 2 ** 20; const copy = {...stub, instance: 'tokens_0_1'};"
        " status.processes.push(copy)"
    )
    look_at(browser, "tokens")
    browser.wait_for(f"{hint}.hidden")

    change_status(browser, f"{twice}; copy.pid += 1")
    browser.wait_for(f"{hint}.innerText.includes('1.6 GiB together')")
    assert "zmqtriton-ctl explain tokens" in browser.text("#processes-unseen")

    origin = "{...stub, role: 'template', instances: 'threads'}"
    change_status(browser, f"{twice}; status.processes.push({origin})")
    browser.wait_for(f"{hint}.innerText.startsWith('They are threads of process ')")
    browser.wait_for(f"{row('tokens')}.textContent.includes('800 MiB')")


def test_an_instance_is_shown_with_what_it_costs(browser: Browser) -> None:
    look_at(browser, "add_sub")
    for title in ("Private", "Shared", "PSS"):
        browser.wait_for(f"{_cell(title)}.endsWith('MiB')")
    assert browser.evaluate(f"{_cell_of('GPU')}.hidden")

    # a new one has not been measured: its columns are there
    change_status(browser, "status.processes.forEach((process) => { delete process.pss_bytes; })")
    browser.wait_for(f"{_cell('PSS')} === '–' && {_cell_of('PSS')}.checkVisibility()")

    change_status(
        browser,
        "const stub = status.processes.find((process) => process.model === 'add_sub');"
        " stub.gpu_bytes = {1: 60 * 2 ** 20, 3: 5 * 2 ** 30}",
    )

    browser.wait_for(f"{_cell('GPU')} === '1: 60 MiB, 3: 5 GiB'")
    assert not browser.evaluate(f"{_cell_of('GPU')}.hidden")


def _cell(title: str) -> str:
    return f"{_cell_of(title)}.textContent"


def _cell_of(title: str) -> str:
    return f"document.querySelector('#processes td[data-title=\"{title}\"]')"


def show_samples(browser: Browser, times: str, values: str, last: str) -> None:
    """Have the plots show other samples than the server's, until `last` is the newest value.

    Times and values, of requests per second, are JavaScript.
    """
    browser.evaluate(
        "window.realFetch ??= window.fetch; void (window.fetch = async (path, options) => {"
        " if (!path.includes('/history')) return window.realFetch(path, options);"
        f" const times = {times}; const requests_per_s = {values};"
        " return new Response(JSON.stringify({times, server: {requests_per_s}, models: {}})); })"
    )
    answered = newest("Requests per second", "answered")
    browser.wait_for(f"({LOOK}, {answered} === {last!r})")


def _ending_with(count: int, pause_s: float) -> str:
    """JavaScript for times that end with `END_S`."""
    return f"Array.from({{length: {count}}}, (_, at) => {END_S} - {pause_s} * ({count - 1} - at))"


def _runs(browser: Browser, name: str) -> list[list[tuple[float, float]]]:
    """The places that the path of this class in the first plot goes through, run by run."""
    path = browser.evaluate(f"document.querySelector('#plots .{name}').getAttribute('d')")
    return [
        [(float(x), float(y)) for x, y in re.findall(r"([\d.]+) ([\d.]+)", run)]
        for run in path.split("M")[1:]
    ]


def _labels(browser: Browser, axis: str) -> dict[str, tuple[float, float]]:
    """The places of the labels of this axis of the first plot."""
    texts = f"[...document.querySelector('#plots .{axis}').children]"
    place = "(text) => [text.textContent, ...['x', 'y'].map((name) => +text.getAttribute(name))]"
    return {text: (x, y) for text, x, y in browser.evaluate(f"{texts}.map({place})")}


def test_a_line_has_gaps_where_nothing_was_measured_and_lies_where_its_axes_say(
    browser: Browser,
) -> None:
    # Given a reader in another time zone, and samples that are not there
    browser.call("Emulation.setTimezoneOverride", timezoneId="Asia/Kolkata")
    browser.evaluate("void (location.hash = '#/overview')")

    show_samples(browser, _ending_with(7, 5), "[10, 20, null, 40, null, 0, 30]", "30")

    times, values = _labels(browser, "times"), _labels(browser, "values")
    browser.call("Emulation.setTimezoneOverride", timezoneId="")
    assert ["0", "10", "20", "30", "40"] == [*values]
    assert "15:15" == [*times][-1]
    x, y = times["15:15"][0], {text: place[1] for text, place in values.items()}
    before = (x - times["15:14"][0]) / 12
    expected = [[(6, "10"), (5, "20")], [(1, "0"), (0, "30")]]
    near = [
        [pytest.approx((x - n * before, y[text]), abs=1) for n, text in run] for run in expected
    ]
    assert near == _runs(browser, "curve")
    assert [[pytest.approx((x - 3 * before, y["40"]), abs=1)]] == _runs(browser, "dots")


def test_the_pointer_and_the_keyboard_choose_a_time_in_all_plots(browser: Browser) -> None:
    browser.evaluate("void (location.hash = '#/overview')")
    show_samples(browser, _ending_with(60, 5), "times.map((_, at) => at)", "59")
    value, plot = newest("Requests per second", "answered"), "document.querySelector('.plot')"
    pointers = "[...document.querySelectorAll('#plots .pointer')].filter((each) => !each.hidden)"
    places = f"{pointers}.map((each) => each.style.transform)"
    text = f"{plot}.getAttribute('aria-valuetext')"

    # When the mouse is in the middle of one plot, then that time is shown in all of them
    browser.evaluate(f"{plot}.scrollIntoView({{block: 'center'}})")
    left, top, width = browser.evaluate(
        f"(({{x, y, width}}) => [x, y, width])({plot}.getBoundingClientRect())"
    )
    middle = {"x": left + (62 + width - 17) / 2, "y": top + 60}
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", **middle)
    browser.wait_for(f"{value} === '29'")
    assert [*{*browser.evaluate(places)}] * 4 == browser.evaluate(places)
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
    browser.wait_for(f"{value} === '59'")
    assert [] == browser.evaluate(places)

    # When keys move it, then a screen reader can tell the time, too
    browser.evaluate(f"{plot}.focus()")
    for key, code, chosen in (("ArrowLeft", 37, 58), ("PageDown", 34, 46), ("Home", 36, 0)):
        browser.press(key, code)
        assert str(chosen) == browser.evaluate(value)
        assert re.fullmatch(rf"\d\d:\d\d:\d\d: answered {chosen}, failed –", browser.evaluate(text))
    browser.press("Escape", 27)
    assert "now: answered 59, failed –" == browser.evaluate(text)
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    sliders = [node["name"]["value"] for node in nodes if node["role"]["value"] == "slider"]
    assert (
        browser.evaluate("[...document.querySelectorAll('h4')].map((e) => e.innerText)") == sliders
    )

    # When the window gets narrow, then the plots do
    browser.set_viewport(420, 900)
    box = "document.querySelector('#plots .curve').getBBox()"
    browser.wait_for(f"Math.abs({box}.x + {box}.width - {plot}.clientWidth + 17) < 2")


def test_what_goes_wrong_is_said_beside_the_buttons(browser: Browser, server: Server) -> None:
    # Given a model whose files are broken
    look_at(browser, "tokens")
    code = server.repository / "tokens" / "1" / "model.py"
    before = code.read_text()
    code.write_text("raise RuntimeError('no weights here')\n")

    # When it is loaded anew
    press(browser, "Reload")

    # Then the server's words stand there, until it is loaded
    browser.wait_for("document.querySelector('#actions-message').innerText.includes('no weights')")
    assert browser.evaluate("document.querySelector('#actions-message').className") == "wrong"
    code.write_text(before)
    press(browser, "Reload")
    browser.wait_for("document.querySelector('#actions-message').hidden")


def test_a_tab_that_nobody_sees_asks_for_nothing(browser: Browser) -> None:
    count = "performance.getEntriesByType('resource').length"
    browser.wait_for(DRAWN)
    hide = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true});"
    pause = "new Promise((resolve) => setTimeout(resolve, %d))"

    def is_asleep() -> bool:
        """Return False, too, where an answer that was under way has come meanwhile."""
        before = browser.evaluate(count)
        browser.evaluate(pause % 2500)
        return bool(before == browser.evaluate(count))

    browser.evaluate(hide % "true" + f"void {LOOK}")
    eventually(is_asleep, 60)
    asleep = browser.evaluate(count)
    browser.evaluate(hide % "false" + f"void {LOOK}")

    browser.wait_for(f"{count} > {asleep}")


def test_two_hundred_models_that_sleep_are_found_and_no_failures(browser: Browser) -> None:
    # Given models that the next request loads
    rows = "document.querySelectorAll('#rows tr:not(.reason)').length"
    browser.wait_for(f"{rows} === {ASLEEP + 2}")
    assert f"2 ready · {ASLEEP} not loaded or asleep" == browser.text("#summary")
    assert "ASLEEP" == browser.evaluate(state("model_077"))
    browser.fill("#filter", "077")
    assert ["model_077"] == shown(browser)

    # When somebody has scrolled, and more comes in
    browser.fill("#filter", "model_")
    scroll = "document.querySelector('#list .scroll')"
    browser.evaluate(f"void ({scroll}.scrollTop = 2000)")
    wait_for_a_look(browser)

    # Then all stands where it was, and one that is loaded is ready
    assert 2000 == browser.evaluate(f"{scroll}.scrollTop")
    look_at(browser, "model_150")
    press(browser, "Load")
    browser.wait_for("document.querySelector('#detail-state').innerText === 'READY'")
    assert "3 ready" in browser.text("#summary")
