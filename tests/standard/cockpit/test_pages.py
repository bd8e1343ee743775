from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from typing import Any

import pytest

from tests.frontends.http_api.fakes import Client, FakeGateway
from zmqtriton_standard.cockpit.pages import DIRECTORY

pytestmark = pytest.mark.slow

#: As Chromium sends it.
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
FILES = sorted(path.name for path in DIRECTORY.iterdir())
#: What one look at the front page loads.
#: Loaded with the first model, or one that makes text, and where the server keeps jobs.
LATER = ["chat.js", "figures.js", "jobs.js"]
FRONT = [n for n in FILES if not n.startswith("docs") and n not in LATER]


def get(path: str, gateway: FakeGateway | None = None, **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return (Client(gateway) if gateway else usual()).request("GET", path, headers=named)


@cache
def usual() -> Client:
    return Client(FakeGateway())


def read(name: str) -> str:
    return (DIRECTORY / name).read_text("utf-8")


class Tags(HTMLParser):
    """The tags of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def loaded(self) -> Iterator[str]:
        for tag, attributes in self.tags:
            for name in ("src", "href"):
                target = attributes.get(name)
                if tag in ("link", "script", "img") and target and not target.startswith("data:"):
                    yield target


@pytest.mark.parametrize("accept", ["text/html", BROWSER, "application/json, Text/HTML;q=0.1"])
def test_who_names_html_gets_the_page(accept: str) -> None:
    result = get("/", accept=accept)

    assert (200, "text/html; charset=utf-8") == (
        result.status_code,
        result.headers["content-type"],
    )
    assert read("front.html") == result.text


@pytest.mark.parametrize("accept", ["", "*/*", "application/json", "text/*", "text/html-like"])
def test_all_others_are_told_where_to_look(accept: str) -> None:
    result = get("/", accept=accept)

    assert (200, "text/plain; charset=utf-8") == (
        result.status_code,
        result.headers["content-type"],
    )
    assert "/docs" in result.text
    assert all(len(line) <= 100 for line in result.text.splitlines())


@pytest.mark.parametrize("method", ["POST", "OPTIONS", "DELETE"])
def test_it_is_there_for_get_alone(method: str) -> None:
    result = Client(FakeGateway()).request(method, "/", headers={"accept": BROWSER})

    assert (404, None) == (result.status_code, result.headers.get("allow"))


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/docs", "text/html"),
        *(
            (f"/pages/{name}", "text/css" if name.endswith("css") else "text/javascript")
            for name in FILES
            if not name.endswith("html")
        ),
    ],
)
def test_every_file_has_its_type_and_may_load_nothing_from_elsewhere(path: str, kind: str) -> None:
    result = get(path)

    policy = dict(
        rule.strip().split(" ", 1) for rule in result.headers["content-security-policy"].split(";")
    )
    assert (200, f"{kind}; charset=utf-8") == (result.status_code, result.headers["content-type"])
    assert "'none'" == policy["default-src"] == policy["frame-ancestors"]
    assert "'self'" == policy["script-src"] == policy["style-src"] == policy["connect-src"]
    assert ("nosniff", "no-referrer") == (
        result.headers["x-content-type-options"],
        result.headers["referrer-policy"],
    )


@pytest.mark.parametrize("name", ["front.html", "nope.js", "__init__.py", "..%2fcatalogue.py"])
def test_nothing_else_is_served(name: str) -> None:
    assert 404 == get(f"/pages/{name}").status_code


def test_who_can_unpack_gets_fewer_bytes() -> None:
    packed = get("/pages/front.js", accept_encoding="gzip, deflate, br")

    assert "gzip" == packed.headers["content-encoding"]
    assert read("front.js") == gzip.decompress(packed.content).decode()
    assert read("front.js") == get("/pages/front.js").text


def test_one_look_loads_little_and_at_once() -> None:
    sizes = {name: len(gzip.compress((DIRECTORY / name).read_bytes())) for name in FRONT}
    named = {target.removeprefix("/pages/") for target in Tags(read("front.html")).loaded()}

    assert sum(sizes.values()) < 44_600
    # Whatever a module imports is named by the page, so that nothing is asked for one by one.
    assert {*FRONT} - {"front.html"} == named


@pytest.mark.parametrize("page", ["front.html", "docs.html"])
def test_a_page_holds_no_code_and_no_style(page: str) -> None:
    assert_plain(read(page))


def assert_plain(text: str) -> None:
    tags = Tags(text).tags

    assert [] == [tag for tag, _ in tags if tag in ("style", "iframe", "object", "base")]
    assert [] == [
        name for _, attributes in tags for name in attributes if name.startswith(("on", "style"))
    ]
    assert [] == re.findall(r"<script[^>]*>[^<]", text)
    assert {200} == {get(target).status_code for target in Tags(text).loaded()}


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith("js")])
def test_no_script_makes_html_or_code_of_text(name: str) -> None:
    assert [] == makers_of_html(read(name))


def makers_of_html(script: str) -> list[str]:
    return re.findall(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|eval\(|new Function"
        r"|setHTML|srcdoc|createContextualFragment|https?://(?!www\.w3\.org/2000/svg)",
        re.sub(r"/\*.*?\*/", "", script, flags=re.DOTALL),
    )


@pytest.mark.parametrize("path", ["/", "/docs", "/openapi.json", "/pages/front.js"])
def test_an_operator_may_do_without(path: str) -> None:
    result = get(path, FakeGateway(allow_web_page=False), accept=BROWSER)

    assert (404, {"error": "Not Found"}) == (result.status_code, result.json)
