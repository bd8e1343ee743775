"""`zmqtriton-ctl infer`: sends a request to a model over HTTP, and prints its outputs.

Other commands that call models share its options, and the request that they describe.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import click

from zmqtriton.sdk.process import Client
from zmqtriton.sdk.wire import InvalidArgument, errors, logs
from zmqtriton_standard.ctl.asking import run_with_client
from zmqtriton_standard.ctl.http_service import (
    HttpService,
    RefusedRequest,
    find_url,
    parse_headers,
)
from zmqtriton_standard.ctl.output import form_option, print_document
from zmqtriton_standard.ctl.selecting import MODEL, seconds_option
from zmqtriton_standard.ctl.tables import terminal_width

if TYPE_CHECKING:
    from zmqtriton_standard.ctl.values import TensorInfo

_USUAL_WIDTH = 100
#: Status codes of refusals with a text that names the missing right.
_ABOUT_ACCESS = (401, 403)
_FAILED = 500
_PARAMETERS = (
    click.argument("model", type=MODEL),
    click.argument("inputs", nargs=-1, metavar="[NAME=VALUE]..."),
    click.option(
        "--version",
        type=click.IntRange(1),
        metavar="N",
        help="Version; by default the server's.",
    ),
    click.option(
        # --json as in earlier versions, though it chooses the output elsewhere
        "--inputs",
        "--json",
        "file",
        metavar="FILE",
        help="Read the inputs from this file of JSON; - is stdin.",
    ),
    click.option(
        "--zeros",
        "fill",
        flag_value="zeros",
        default="",
        help="Fill inputs that are not given with zeros.",
    ),
    click.option("--random", "fill", flag_value="random", help="Fill them with random values."),
    click.option(
        "--url",
        default="",
        metavar="URL",
        help="Where to ask by HTTP, if not at the port without TLS. $SSL_CERT_FILE has the CA for "
        "https.",
    ),
    click.option("--header", "-H", multiple=True, metavar="'NAME: VALUE'", help="Header to send."),
    seconds_option(
        "--timeout", default=60.0, takes_zero=False, text="Seconds that a request may take."
    ),
)
HEADER_LENGTH = "Inference-Header-Content-Length"


class PreparedRequest(NamedTuple):
    """The JSON of a request, and the bytes of its tensors."""

    document: dict[str, Any]
    #: A piece for each input; none if the values are in the document.
    pieces: tuple[bytes, ...]

    def encode(self, *, is_stream: bool = False) -> tuple[bytes, dict[str, str]]:
        """Return the body for HTTP and its headers; for a stream, the responses are JSON alone."""
        parameters = self.document.get("parameters", {})
        if not is_stream:
            parameters = {"binary_data_output": True, **parameters}
        head = json.dumps({**self.document, "parameters": parameters}).encode()
        headers = {"Content-Type": "application/octet-stream", HEADER_LENGTH: str(len(head))}
        return head + b"".join(self.pieces), headers


def model_path(model: str, version: int | None) -> str:
    return f"/v2/models/{quote(model, safe='')}" + (f"/versions/{version}" if version else "")


def read_json(file: str) -> Any:
    try:
        with click.open_file(file, encoding="utf-8") as source:
            return json.load(source)
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"--json {file} cannot be read, correct it: {error}") from None


def prepare(
    service: HttpService, path: str, words: Sequence[str], document: Any, fill: str
) -> PreparedRequest:
    """Make a request; `fill` names the values for inputs that are not given, "" for none.

    The model's metadata has the types and shapes. Raises InvalidArgument.
    """
    # only now: the other commands do without numpy
    from zmqtriton_standard.ctl import values

    if isinstance(document, dict) and isinstance(document.get("inputs"), list):
        if words or fill:
            raise InvalidArgument("--json has a whole request: leave other inputs out")
        return PreparedRequest(document, ())
    infos = [
        values.TensorInfo.from_metadata(entry) for entry in service.request(path).json()["inputs"]
    ]
    arrays = {} if document is None else values.read_document(document, infos)
    if words or fill or document is None:
        arrays = {**values.read_inputs(words, infos, fill=fill), **arrays}
    return pack(infos, arrays)


def pack(infos: Sequence[TensorInfo], arrays: Mapping[str, Any]) -> PreparedRequest:
    """Make a request of arrays by the names of their inputs."""
    from zmqtriton_standard.ctl import values

    pieces, entries = [], []
    for info in infos:
        if info.name in arrays:
            pieces.append(values.encode(arrays[info.name], info.datatype))
            entries.append(
                {
                    "name": info.name,
                    "datatype": info.datatype.name,
                    "shape": list(arrays[info.name].shape),
                    "parameters": {"binary_data_size": len(pieces[-1])},
                }
            )
    return PreparedRequest({"inputs": entries}, tuple(pieces))


class RequestOptions(NamedTuple):
    """The user's choices for a request."""

    model: str
    inputs: tuple[str, ...]
    version: int | None
    #: Path of a JSON file with a request or inputs; None if the user has given none.
    file: str | None
    #: Other inputs are filled with "zeros" or "random" values; "" leaves them out.
    fill: str | None
    url: str
    header: tuple[str, ...]
    timeout: float

    @property
    def path(self) -> str:
        return model_path(self.model, self.version)

    @property
    def headers(self) -> dict[str, str]:
        """Parse the headers. Raises InvalidArgument."""
        return parse_headers(self.header)

    def service(self, client: Client) -> HttpService:
        """Return the HTTP service of `--url`, or else of the server.

        Raises InvalidArgument, and NotFound if the server has no port.
        """
        return HttpService(self.url or find_url(client), self.headers, self.timeout)

    def prepare(self, service: HttpService) -> PreparedRequest:
        """Make the request. Raises InvalidArgument, and the errors of the service."""
        document = None if self.file is None else read_json(self.file)
        return prepare(service, self.path, self.inputs, document, self.fill or "")


def with_request_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options; the command gets the parameter `request_options`."""

    @functools.wraps(command)
    def run(*words: Any, **parameters: Any) -> None:
        of_request = {name: parameters.pop(name) for name in RequestOptions._fields}
        command(*words, request_options=RequestOptions(**of_request), **parameters)

    for add in reversed(_PARAMETERS):
        run = add(run)
    return run


@click.command()
@with_request_options
@form_option
@click.pass_context
def infer(context: click.Context, request_options: RequestOptions, form: str) -> None:
    """Send a request to MODEL, and print its outputs.

    Responses of a decoupled model are printed one by one, as they come. VALUE is a number, several
    with commas, a text, a list in JSON, or @FILE: a .npy file, or any file for an input of BYTES.
    Shapes and types are the model's. --json reads an object of values by name, or a whole request
    of the protocol.
    """

    def question(client: Client) -> dict[str, Any]:
        service, path = request_options.service(client), request_options.path
        try:
            request = request_options.prepare(service)
            if _is_decoupled(service, path):
                show = _print if form == "table" else _ignore
                return {
                    "responses": [_shown(each, show) for each in _stream(service, path, request)]
                }
            return _ask(service, path, request)
        except (errors.DeadlineExceeded, RefusedRequest) as error:
            client.check_model(request_options.model)
            if isinstance(error, RefusedRequest) and error.status in _ABOUT_ACCESS:
                raise
            hint = f"`zmqtriton-ctl explain {request_options.model}` may say why"
            raise RefusedRequest(f"{error.text.rstrip()}; {hint}") from None

    answer = run_with_client(context, question)
    if "responses" not in answer and form == "table":
        _print(answer)
    elif "responses" not in answer:
        print_document(form, _to_document(answer))
    elif form != "table":
        print_document(form, {"responses": [*map(_to_document, answer["responses"])]})
    elif not answer["responses"]:
        click.echo("the stream has ended without a response")


def _is_decoupled(service: HttpService, path: str) -> bool:
    try:
        config = service.request(f"{path}/config").json()
    except RefusedRequest:
        return False  # it may not be read; the answer to the request says the rest
    return bool(config.get("model_transaction_policy", {}).get("decoupled"))


def _stream(service: HttpService, path: str, request: PreparedRequest) -> Iterator[dict[str, Any]]:
    """Yield the responses of a stream. Raises RefusedRequest for an error in it."""
    body, headers = request.encode(is_stream=True)
    began_s = time.perf_counter()
    for document in service.stream(f"{path}/infer_stream", body, headers):
        if "error" in document:
            raise RefusedRequest(str(document["error"]), _FAILED)
        took_s = time.perf_counter() - began_s
        yield {**_with_arrays(document), "seconds": round(took_s, 6)}


def _shown(answer: dict[str, Any], show: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    show(answer)
    return answer


def _ignore(answer: dict[str, Any]) -> None:
    """Do nothing: a JSON document prints all responses at the end."""


def _ask(service: HttpService, path: str, request: PreparedRequest) -> dict[str, Any]:
    body, headers = request.encode()
    began_s = time.perf_counter()
    answer = service.request(f"{path}/infer", body, headers)
    took_s = time.perf_counter() - began_s
    length = int(answer.headers.get(HEADER_LENGTH.lower(), len(answer.body)))
    document = _with_arrays(json.loads(answer.body[:length]), answer.body[length:])
    return {**document, "seconds": round(took_s, 6)}


def _with_arrays(document: dict[str, Any], data: bytes = b"") -> dict[str, Any]:
    """Return a response with arrays as data, read from the document or from `data` behind it."""
    import numpy as np

    from zmqtriton_standard.ctl import values

    position = 0
    for output in document.get("outputs", ()):
        size = output.get("parameters", {}).pop("binary_data_size", None)
        if size is None:
            kind = np.object_ if output["datatype"] == "BYTES" else None
            output["data"] = np.array(output.get("data", []), kind).reshape(output["shape"])
        else:
            piece = data[position : position + size]
            output["data"] = values.decode(output["datatype"], output["shape"], piece)
            position += size
    return document


def _print(answer: dict[str, Any]) -> None:
    from zmqtriton_standard.ctl import values

    width = terminal_width() or _USUAL_WIDTH
    version = f" version {answer['model_version']}" if answer.get("model_version") else ""
    name = logs.escape(f"{answer.get('model_name', '')}{version}")
    click.echo(f"{name}, {answer['seconds'] * 1e3:.1f} ms")
    for output in answer.get("outputs", ()):
        click.echo(logs.escape(f"{output['name']}  {output['datatype']} {output['shape']}"))
        text = values.format_array(output["data"], width - 2)
        click.echo("\n".join(f"  {logs.escape(line)}" for line in text.splitlines() or [""]))


def _to_document(answer: dict[str, Any]) -> dict[str, Any]:
    from zmqtriton_standard.ctl import values

    return {
        **answer,
        "outputs": [
            {key: each[key] for key in ("name", "datatype", "shape")}
            | {"data": values.to_json(each["data"])}
            for each in answer.get("outputs", ())
        ],
    }
