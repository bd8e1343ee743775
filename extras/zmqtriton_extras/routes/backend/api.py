"""The names that a routes.py imports from `zmqtriton.routes`: for Python 3.8, without the server.

@route("POST /ocr")
async def ocr(request, infer):
    response = await infer({"IMAGE": request.files["file"].bytes})
    return {"text": response["TEXT"].tolist()}
"""

from __future__ import annotations

import inspect
import re
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple
from urllib.parse import parse_qsl

from zmqtriton_extras.routes.backend.multipart import File, RefusedError, read_form
from zmqtriton_floor.sdk import documents

__all__ = ["File", "Request", "Response", "RouteError", "infer", "route"]

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_PATTERN = re.compile(rf"({'|'.join(METHODS)}) (/\S*)")
_PARAMETER = re.compile(r"{([A-Za-z_]\w*)(:path)?}")


class RouteError(Exception):
    """Raised by a route to respond with a status and `{"error": text}`."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Values(Dict[str, Any]):
    """Values of a request by name. If a route reads a missing one, the client gets 400."""

    def __missing__(self, name: str) -> Any:
        raise RouteError(400, f"the request has no '{name}'; add it")


class Request:
    """The request of a client to a route."""

    def __init__(self, head: Dict[str, Any], body: memoryview) -> None:
        self.method: str = head["method"]
        #: Path as the route names it, after `/models/NAME`.
        self.path: str = head["path"]
        #: The parts of the path that the route names in braces.
        self.params: Dict[str, str] = {}
        #: The values by name, of several the last one.
        self.query = Values(parse_qsl(head["query"], keep_blank_values=True))
        #: The values by name in small letters, of several the last one.
        self.headers: Dict[str, str] = dict(head["headers"])
        #: All of the body; it is valid while the route runs.
        self.view = body
        self._form: Optional[Tuple[Values, Values]] = None

    @property
    def bytes(self) -> bytes:
        """A copy of the body."""
        return self.view.tobytes()

    def text(self) -> str:
        try:
            return str(self.view, "utf-8")
        except UnicodeDecodeError:
            raise RouteError(400, "the body must be UTF-8") from None

    def json(self, *, max_bytes: int = documents.LIMITS.bytes) -> Any:
        """Return the body's document. Without a document the client gets 400.

        The client gets 413 for more bytes, for more values than a 64th of them, for more members of
        objects than a 128th, and for more arrays and objects than a 256th.
        """
        try:
            return documents.parse(self.bytes, limits=documents.limits_of(max_bytes))
        except documents.LargeDocumentError as error:
            raise RouteError(413, f"the body is too large: {error}") from None
        except ValueError as error:
            raise RouteError(400, f"the body must be JSON: {error}") from None

    @property
    def form(self) -> Values:
        """The fields of a form, by name."""
        return self._read_form()[0]

    @property
    def files(self) -> Values:
        """The files of a form, by name."""
        return self._read_form()[1]

    def _read_form(self) -> Tuple[Values, Values]:
        if self._form is None:
            try:
                fields, files = read_form(self.headers.get("content-type", ""), self.view)
                self._form = Values(fields), Values(files)
            except RefusedError as error:
                raise RouteError(*error.args) from None
        return self._form


class Response:
    """A response with more than a value: a status, headers, a body or an iterator of parts."""

    def __init__(
        self,
        body: Any = b"",
        status: int = 200,
        headers: Iterable[Tuple[str, str]] = (),
        content_type: str = "",
    ) -> None:
        self.body = body
        self.status = status
        self.headers: List[Tuple[str, str]] = list(
            headers.items() if isinstance(headers, dict) else headers
        )
        self.content_type = content_type


class Row(NamedTuple):
    """A route and its function."""

    method: str
    path: str
    pattern: Any
    function: Callable[..., Any]


#: Routes in the order of their creation; the first that matches is used.
rows: List[Row] = []


def route(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function the route of a method and a path, such as `"POST /ocr/{page}"`."""
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise ValueError(f"a route is one of {', '.join(METHODS)} and a path, not {text!r}")

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        rows.append(Row(match[1], match[2], _compiled(match[2]), function))
        return function

    return decorate


def _compiled(path: str) -> Any:
    parts, at = [], 0
    for parameter in _PARAMETER.finditer(path):
        what = ".+" if parameter[2] else "[^/]+"
        parts += [re.escape(path[at : parameter.start()]), f"(?P<{parameter[1]}>{what})"]
        at = parameter.end()
    return re.compile("".join([*parts, re.escape(path[at:])]), re.DOTALL)


def describe() -> Dict[str, Any]:
    """Return the paths of all routes in OpenAPI's form; texts are the functions' docstrings."""
    paths: Dict[str, Any] = {}
    for row in rows:
        summary, _, text = inspect.cleandoc(row.function.__doc__ or "").partition("\n")
        operation: Dict[str, Any] = {
            "summary": summary or row.function.__name__.replace("_", " "),
            "responses": {"default": {"description": "The answer of the route."}},
        }
        if text.strip():
            operation["description"] = text.strip()
        parameters = [
            {"name": match[1], "in": "path", "required": True, "schema": {"type": "string"}}
            for match in _PARAMETER.finditer(row.path)
        ]
        if parameters:
            operation["parameters"] = parameters
        if row.method in ("POST", "PUT", "PATCH"):
            operation["requestBody"] = {"content": {"application/json": {"schema": {}}}}
        path = _PARAMETER.sub(r"{\1}", row.path)
        paths.setdefault(path, {}).setdefault(row.method.lower(), operation)
    return {"paths": paths}


def find(method: str, path: str) -> Tuple[Row, Dict[str, str]]:
    """Return a request's route and the parameters in its path. Raises RouteError."""
    own_method = "GET" if method == "HEAD" else method
    is_known = False
    for row in rows:
        match = row.pattern.fullmatch(path)
        if match is not None and row.method == own_method:
            return row, match.groupdict()
        is_known = is_known or match is not None
    raise RouteError(405 if is_known else 404, "Method Not Allowed" if is_known else "Not Found")


class Infer:
    """Calls models; `infer` is the only instance. calls.py has the parts that need a server."""

    def __init__(self) -> None:
        self.ask: Any = None
        self.ask_stream: Any = None

    async def __call__(self, inputs: Dict[str, Any], **more: Any) -> Dict[str, Any]:
        """Call the route's model, or another one by `model="name"`; return outputs by name."""
        outputs: Dict[str, Any] = await self._bound(self.ask)(inputs, **more)
        return outputs

    def stream(self, inputs: Dict[str, Any], **more: Any) -> Any:
        """Return the outputs of each response of a decoupled model, for `async for`."""
        return self._bound(self.ask_stream)(inputs, **more)

    @staticmethod
    def _bound(call: Any) -> Any:
        if call is None:
            raise RuntimeError("infer works only in a server: use model.call_route in tests")
        return call


infer = Infer()
