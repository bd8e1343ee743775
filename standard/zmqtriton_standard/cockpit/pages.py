"""The pages for browsers, at `/` and `/docs`, the files that they load, and their routes.

The files are read once, when the application is built. They contain nothing of this server: they
ask the API for all that they show, like any client, so they are open even if all of the API is
restricted.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType

import falcon
import falcon.asgi

from zmqtriton.sdk.frontend import Gateway, HttpExtension, HttpRequest, Route
from zmqtriton.sdk.process import Hook
from zmqtriton_standard.cockpit.description import Description
from zmqtriton_standard.cockpit.operations import Operations
from zmqtriton_standard.cockpit.status import Status

DIRECTORY = Path(__file__).parent / "files"
#: A package whose scripts, styles and HTML pages are served below `/pages`.
FILES = Hook[ModuleType]("page.files")
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; media-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    # They belong to this version of the server, and are small.
    "Cache-Control": "no-cache",
    "Vary": "Accept, Accept-Encoding",
}


#: Home page as plain text, for users of curl and other clients that do not ask for HTML.
_SIGNPOST = b"""\
This is zmqtriton, an inference server that speaks NVIDIA Triton's protocol.

  GET  /docs                  every request with examples, for browsers; as JSON at /openapi.json
  GET  /v2/health/ready       200 if all models can execute
  POST /v2/repository/index   the models, their states, and why any is not ready
  POST /v2/models/MODEL/infer
  GET  /v2/zmqtriton/status   the server's processes and models

On its machine, `zmqtriton-ctl status` shows the same, and `zmqtriton-ctl explain` what to do about
a model that is not ready. Browsers get a page here.
"""


class Pages:
    """Responders for the files of pages in some directories."""

    def __init__(self, *directories: Path) -> None:
        paths = [path for directory in directories for path in directory.glob("*.*")]
        self._files = {path.name: path.read_bytes() for path in paths if path.suffix in _TYPES}

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/", "", self.front),
            Route("GET", "/docs", "", self.docs),
            Route("GET", "/pages/{file:name}", "", self.asset),
        ]

    async def front(self, req: HttpRequest, resp: falcon.asgi.Response) -> None:
        if not wants_html(req.header(b"accept") or ""):
            resp.content_type, resp.data = "text/plain; charset=utf-8", _SIGNPOST
            resp.set_header("Vary", "Accept")
            return
        self.send(req, resp, "front.html")

    async def docs(self, req: HttpRequest, resp: falcon.asgi.Response) -> None:
        self.send(req, resp, "docs.html")

    async def asset(self, req: HttpRequest, resp: falcon.asgi.Response, file: str) -> None:
        if file not in self._files or file.endswith(".html"):
            raise falcon.HTTPNotFound
        self.send(req, resp, file)

    def send(self, req: HttpRequest, resp: falcon.asgi.Response, file: str) -> None:
        resp.set_headers(_HEADERS)
        resp.content_type = _TYPES[Path(file).suffix]
        if "gzip" in (req.header(b"accept-encoding") or ""):
            resp.set_header("Content-Encoding", "gzip")
            resp.data = _packed(self._files[file])
        else:
            resp.data = self._files[file]


@cache
def _packed(data: bytes) -> bytes:
    """Return a file compressed; only for browsers, so not before one asks."""
    return gzip.compress(data, mtime=0)


def wants_html(accept: str) -> bool:
    """True if HTML is listed by name, as browsers do; other clients send `*/*`."""
    return any(part.partition(";")[0].strip().lower() == "text/html" for part in accept.split(","))


def _with_pages(gateway: Gateway, table: list[Route]) -> Sequence[Route]:
    """Return the routes, with the routes of the pages and of the description."""
    if not gateway.settings.option("allow_web_page"):
        return ()
    whole = list(table)
    whole.append(Route("GET", "/openapi.json", "metadata", Description(gateway, whole).document))
    packages = FILES.all_of(gateway.settings.offers)
    whole += Pages(DIRECTORY, *(Path(each.__path__[0]) for each in packages)).routes()
    return whole


EXTENSION = HttpExtension(
    lambda gateway: [*Operations(gateway).routes(), *Status(gateway).routes()], around=_with_pages
)
