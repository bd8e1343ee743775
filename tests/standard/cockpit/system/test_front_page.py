"""The front page at work: from a red figure to the model and its error, and a chat with a model."""

from __future__ import annotations

import pytest

from tests.standard.cockpit.system.front_page import (
    SAID,
    change_status,
    choose_chat,
    look_at,
    part,
    row,
    say,
    shown,
    wait_for_a_look,
)
from tests.support.browser import Browser

pytestmark = [
    pytest.mark.long(
        "standard/cockpit/system/test_pages.py::test_models_are_shown_with_their_states",
        "standard/cockpit/system/test_pages.py::test_an_answer_comes_word_by_word_and_the_chat_goes_on",
    ),
    pytest.mark.system,
    pytest.mark.server(
        models=["add_sub", "parrot", "string_upper", "tokens"],
        options=["--allow-openai"],
        frontends=["metrics"],
    ),
]


def test_a_tile_leads_to_the_models_behind_its_figure(browser: Browser) -> None:
    # Given a model that fails, though it is ready
    change_status(
        browser,
        "status.models.forEach((model) => { model.failures_per_s = model.requests_per_s = 0; });"
        " Object.assign(status.models.find(({ name }) => name === 'tokens'),"
        " { failures_per_s: 143, requests_per_s: 1, failed: 12, last_error:"
        " { text: 'no feature store', at_s: status.server.started_s + status.server.uptime_s } })",
    )
    failing = f"{row('tokens')}.querySelector('.failing')"
    browser.wait_for(f"{failing}.textContent === '143'")
    browser.click("th [data-sort=name]")
    assert shown(browser).index("tokens") > 0

    # When somebody takes the tile that is red
    red = "getComputedStyle(document.querySelector('.tile.bad strong')).color"
    assert browser.evaluate(f"getComputedStyle({failing}).color === {red}")
    browser.click("[data-sort=failures].tile")

    # Then the model comes first, and says why
    browser.wait_for(
        "document.querySelector('#rows tr').contains(document.activeElement) || "
        f"document.querySelector('#rows tr') === {row('tokens')}"
    )
    assert "tokens" == shown(browser)[0]
    assert "descending" == browser.evaluate(
        "document.querySelector('th[aria-sort]').getAttribute('aria-sort')"
    )
    look_at(browser, "tokens")
    browser.wait_for("document.querySelector('#detail-error').innerText.includes('no feature')")
    assert "The last error, 0 s ago: no feature store" == browser.text("#detail-error")

    # And a second time on the column has the server's order
    browser.click("th [data-sort=failures]")
    assert "tokens" != shown(browser)[0]
    change_status(browser, "")
    browser.wait_for("document.querySelector('.tile.bad') === null")
    browser.wait_for("document.querySelector('#detail-error').hidden")


def test_a_log_that_may_not_be_read_says_so_in_its_place_and_is_not_asked_for_again(
    browser: Browser,
) -> None:
    browser.evaluate(
        "window.realFetch ??= window.fetch; window.asked = 0;"
        " void (window.fetch = async (path, options) => {"
        " if (!path.includes('/logs')) return window.realFetch(path, options);"
        " window.asked += 1;"
        " return new Response(JSON.stringify({error: 'a log may hold secrets'}), {status: 403}); })"
    )

    part(browser, "logs")

    browser.wait_for("document.querySelector('#logs .hint').innerText !== ''")
    assert "Not shown: a log may hold secrets" == browser.text("#logs .hint")
    for _ in range(2):
        wait_for_a_look(browser)
    assert 1 == browser.evaluate("window.asked")
    part(browser, "overview")
    browser.evaluate("void (window.fetch = window.realFetch)")
    part(browser, "logs")
    browser.wait_for("document.querySelectorAll('#logs li').length > 0")
    assert "" == browser.text("#logs .hint")


def test_an_endless_answer_is_stopped_and_a_failed_one_says_why(browser: Browser) -> None:
    choose_chat(browser)
    say(browser, "FOREVER")
    browser.wait_for(f"({SAID}.at(-1)?.[1] ?? '').includes('FOREVERFOREVER')")
    browser.click("#try form button:not([hidden]):nth-of-type(2)")
    browser.wait_for("!document.querySelector('#try form .main').disabled")
    assert browser.evaluate(f"{SAID}.at(-1)[1]").startswith("FOREVER")

    say(browser, "FAIL")
    browser.wait_for("document.querySelector('#try form .wrong').textContent !== ''")
    assert "the word is FAIL" in browser.text("#try form .wrong")
    assert "assistant" == browser.evaluate(f"{SAID}.at(-2)[0]"), "the answer before"
    assert ["user", "FAIL"] == browser.evaluate(f"{SAID}.at(-1)")


def test_a_model_shows_the_batches_that_it_has_chosen(browser: Browser) -> None:
    chosen = "{ auto: 'p99 80 ms', delay_us: 3100, target: 8 }"
    change_status(
        browser, f"status.models.find(({{ name }}) => name === 'tokens').batching = {chosen}"
    )

    look_at(browser, "tokens")

    shown_choice = "batches for p99 80 ms\\nup to 8 within 3.1 ms"
    browser.wait_for(
        f"document.querySelector('#facts').innerText.toLowerCase().includes('{shown_choice}')"
    )
