"""The pages of a server that asks for a key or a token, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.standard.cockpit.system.front_page import choose, run, shown, state
from tests.support.browser import Browser
from tests.support.server import Server
from zmqtriton.options.values import CATEGORIES
from zmqtriton_floor import token_file
from zmqtriton_floor.token_file import Grant

pytestmark = [
    pytest.mark.system,
    pytest.mark.long(
        "standard/cockpit/system/test_pages.py::test_models_are_shown_with_their_states",
        "system/protocols/test_tokens.py::test_every_route_is_closed_and_opened_by_its_scope",
    ),
]


def test_a_key_can_be_typed_for_a_restricted_api(chromium: Browser, tmp_path: Path) -> None:
    # Given an API that answers to those alone who have the key, but for its health
    chromium.complaints.clear()
    option = (
        f"--http-restricted-api={','.join(c for c in CATEGORIES if c != 'health')}:x-key=secret"
    )
    with Server(tmp_path, ["add_sub"], options=[option], frontends=("metrics",)) as server:
        chromium.open(f"{server.url}/")

        # When somebody looks, and types a wrong one, then the right one
        chromium.wait_for("!document.querySelector('#access').hidden")
        assert "expecting header 'x-key'" in chromium.text("#access-text")
        assert "x-key" == chromium.evaluate(
            "document.querySelector('#access').elements.header.value"
        )
        for value in ("wrong", "secret"):
            chromium.wait_for("!document.querySelector('#access').hidden")
            chromium.fill("#access [name=value]", value)
            chromium.click("#access button")

        # Then all is shown, and nothing keeps the key
        chromium.wait_for(f"{state('add_sub')} === 'READY'")
        chromium.wait_for("document.querySelector('#access').hidden")
        choose(chromium, "add_sub")
        run(chromium)
        kept = "[{...localStorage}, {...sessionStorage}, document.cookie, location.href]"
        assert "secret" not in chromium.evaluate(f"JSON.stringify({kept})")
        assert "secret" not in chromium.evaluate("document.body.innerText")
        chromium.open("about:blank")
    assert [] == chromium.complaints


@pytest.mark.row("L09")
def test_a_token_is_asked_for_and_kept_for_the_tab(chromium: Browser, tmp_path: Path) -> None:
    # Given a server that answers to those alone who have a token, for one model or for all
    chromium.complaints.clear()
    tokens, some, scraper, every = tmp_path / "tokens", "zmqt_some", "zmqt_scraper", "zmqt_every"
    grants = [
        Grant(token, token_file.Grant.digest_of(token), frozenset({scope}), (models,))
        for token, scope, models in (
            (some, "infer", "string*"),
            (scraper, "metrics", "*"),
            (every, "infer", "*"),
        )
    ]
    tokens.write_text("".join(f"{grant.line()}\n" for grant in grants))
    models = ["add_sub", "string_upper"]
    options = [f"--tokens={tokens}"]
    with Server(tmp_path / "s", models, options=options, frontends=("metrics",)) as server:
        chromium.open(f"{server.url}/")

        # When somebody looks, and types a wrong one
        chromium.wait_for("!document.querySelector('#access').hidden")
        assert "This server needs a token" == chromium.text("#access-title")
        assert chromium.evaluate("document.querySelector('#access [name=header]').disabled")
        _type_token(chromium, "zmqt_wrong")
        chromium.wait_for(f"{_ACCESS_TEXT}.includes('not known to this server')")
        assert {} == chromium.evaluate("({...sessionStorage})")

        # When it is one for some models, then those are shown, and one may be tried
        _type_token(chromium, some)
        chromium.wait_for(f"{state('string_upper')} === 'READY'")
        chromium.wait_for("document.querySelector('#access').hidden")
        assert ["string_upper"] == shown(chromium)
        choose(chromium, "string_upper")
        run(chromium)
        assert "Bearer …" in chromium.evaluate("document.querySelector('#try .answer').textContent")
        assert some not in chromium.evaluate("document.documentElement.outerHTML")

        # And a page that is loaded anew still has it, and so has the description
        chromium.open(f"{server.url}/docs")
        chromium.wait_for("document.querySelector('#operations details') !== null")
        assert [some] == chromium.evaluate("Object.values(sessionStorage)")
        assert [{}, ""] == chromium.evaluate("[{...localStorage}, document.cookie]")

        # When it is removed, another one is asked for
        tokens.write_text("".join(f"{grant.line()}\n" for grant in grants[1:]))
        chromium.open(f"{server.url}/")
        chromium.wait_for("!document.querySelector('#access').hidden")
        _type_token(chromium, scraper)
        chromium.wait_for(f"{state('add_sub')} === 'READY'")
        assert models == sorted(shown(chromium))

        # When that is not good for what is tried, the form stays until there is another one
        choose(chromium, "add_sub")
        run(chromium, "403")
        count = "performance.getEntriesByName(location.origin + '/v2').length"
        looks = chromium.evaluate(count)
        chromium.wait_for(f"{count} > {looks + 1}")
        assert "expecting scope 'infer'" in chromium.text("#access-text")
        _type_token(chromium, every)
        chromium.wait_for("document.querySelector('#access').hidden")
        choose(chromium, "add_sub")
        run(chromium)
        chromium.evaluate("sessionStorage.clear()")
        chromium.open("about:blank")
    assert "zmqt_" not in server.log_text()
    assert [] == chromium.complaints


_ACCESS_TEXT = "document.querySelector('#access-text').innerText"


def _type_token(chromium: Browser, token: str) -> None:
    chromium.fill("#access [name=value]", token)
    chromium.click("#access button")
