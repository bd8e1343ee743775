"""The front page as tests use it: its rows, and the form in which a model is tried."""

from __future__ import annotations

import json

from tests.support.browser import Browser
from tests.support.server import Server
from tests.support.waiting import eventually

STATUS = "/v2/zmqtriton/status"
#: Has the page look at the server now, if it does not look already.
LOOK = "document.dispatchEvent(new Event('visibilitychange'))"
#: What was said in a chat, and by whom.
SAID = (
    "[...document.querySelectorAll('.chat li')]"
    ".map((li) => [li.dataset.role, li.lastChild.textContent])"
)
#: Plots, without those of figures that the model does not have.
PLOTS = "#plots figure:not([hidden]) svg"
#: True once all plots have the labels of their axes.
DRAWN = (
    f"[...document.querySelectorAll('{PLOTS}')].every((svg) => svg.querySelector('text') != null)"
)


def row(model: str) -> str:
    """JavaScript for the row of a model."""
    return (
        "[...document.querySelectorAll('#rows tr:not(.reason)')]"
        f".find((tr) => tr.querySelector('a').textContent === {json.dumps(model)})"
    )


def state(model: str) -> str:
    return f"{row(model)}.querySelector('.state').textContent"


def reason(model: str) -> str:
    return f"{row(model)}.nextSibling.innerText"


def shown(browser: Browser) -> list[str]:
    """Names of the models that a person sees."""
    return browser.evaluate(
        "[...document.querySelectorAll('#rows tr:not(.reason)')].filter((tr) => !tr.hidden)"
        ".map((tr) => tr.querySelector('a').textContent)"
    )


def look_at(browser: Browser, model: str) -> None:
    """Chooses a model, once it is listed, and sees how it is."""
    browser.wait_for(f"!!{row(model)}")
    browser.evaluate(f"{row(model)}.querySelector('a').click()")
    browser.wait_for(f"document.querySelector('#detail-title').innerText === {json.dumps(model)}")


def part(browser: Browser, name: str) -> None:
    """Goes to a part of what there is to see: overview, logs or try."""
    browser.click(f"[data-part={name}]")
    browser.wait_for(f"!document.getElementById({name!r}).hidden")


def choose(browser: Browser, model: str) -> None:
    """Chooses a model to be tried."""
    look_at(browser, model)
    part(browser, "try")
    browser.wait_for(
        f"document.querySelector('#try-title').innerText === {json.dumps('Try ' + model)}"
    )
    browser.wait_for("document.querySelector('#try textarea:not([aria-label=Message])') !== null")


def run(browser: Browser, expected: str = "200 OK") -> list[str]:
    """Sends what the form holds; the boxes of the answer."""
    browser.click("#try button[title='Ctrl+Enter']")
    browser.wait_for(
        "!document.querySelector('#try button[title=\"Ctrl+Enter\"]').disabled && "
        f"document.querySelector('#try .state').textContent.startsWith({expected!r})"
    )
    boxes = "[...document.querySelectorAll('#try .answer > .box')].map((box) => box.innerText)"
    return browser.evaluate(boxes)


def wait_for_a_look(browser: Browser) -> None:
    """Waits until the page has asked for the state anew, and shows it."""
    looks = (
        "performance.getEntriesByType('resource')"
        f".filter(({{name}}) => name.startsWith(location.origin + {STATUS!r})).length"
    )
    before = browser.evaluate(looks)
    browser.wait_for(f"({LOOK}, {looks} > {before + 1})")


def change_status(browser: Browser, change: str) -> None:
    """Has the page see another state than the server's: JavaScript that changes `status`."""
    browser.evaluate(
        "window.realFetch ??= window.fetch; void (window.fetch = async (path, options) => {"
        " const response = await window.realFetch(path, options);"
        f" if (!path.startsWith({STATUS!r})) return response;"
        f" const status = await response.json(); {change};"
        f" return new Response(JSON.stringify(status)); }}, {LOOK})"
    )


def press(browser: Browser, label: str) -> None:
    """Presses a button of the model that is looked at, once it may be."""
    browser.wait_for(f"{button(label)}.checkVisibility() && !{button(label)}.disabled")
    browser.evaluate(f"{button(label)}.click()")


def button(label: str) -> str:
    """JavaScript for a button of the model that is looked at."""
    buttons = "[...document.querySelectorAll('#actions-buttons button')]"
    return f"{buttons}.find((button) => button.textContent === {label!r})"


def newest(title: str, label: str) -> str:
    """JavaScript for what a plot says of its newest sample."""
    figures = "[...document.querySelectorAll('figure:has(h4)')]"
    return (
        f"[...{figures}.find((figure) => figure.querySelector('h4').textContent === {title!r})"
        f".querySelectorAll('.key')].find((key) => key.textContent.startsWith({label!r}))"
        ".querySelector('output').textContent"
    )


def choose_chat(browser: Browser) -> None:
    """Chooses a model that chats."""
    choose(browser, "parrot")
    browser.wait_for("document.querySelector('.chat') !== null")


def say(browser: Browser, text: str) -> None:
    """Says something to the model that chats."""
    browser.fill("[aria-label=Message]", text)
    browser.press("Enter", 13)


def only_pid(server: Server, model: str) -> int:
    """Return the process of a model, once the one before it has ended."""
    eventually(lambda: len(server.stub_pids(model)) == 1, 60, f"one process of {model}")
    return server.stub_pids(model)[0]
