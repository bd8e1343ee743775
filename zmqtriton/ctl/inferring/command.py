"""`zmqtriton-ctl infer`: asks a model over the server's HTTP port and prints its outputs."""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import quote

import click

from zmqtriton.ctl.asking import check_name, run_with_client
from zmqtriton.ctl.client import Client
from zmqtriton.ctl.inferring.http_service import (
    Answer,
    HttpService,
    RefusedRequest,
    find_url,
    parse_headers,
)
from zmqtriton.ctl.output import form_option, print_document
from zmqtriton.ctl.selecting import MODEL
from zmqtriton.ctl.tables import terminal_width
from zmqtriton_floor.errors import DeadlineExceeded, InvalidArgument

_HEADER_LENGTH = "Inference-Header-Content-Length"
_USUAL_WIDTH = 100


@click.command()
@click.argument("model", type=MODEL)
@click.argument("inputs", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--version", default="", metavar="N", help="Version; by default the server's.")
@click.option("--json", "file", metavar="FILE", help="Read the inputs from here; - is stdin.")
@click.option("--zeros", is_flag=True, help="Fill inputs that are not given with zeros.")
@click.option(
    "--url",
    default="",
    help="Where to ask, if not at the HTTP port without TLS. $SSL_CERT_FILE has the CA for https.",
)
@click.option("--header", "-H", multiple=True, metavar="'NAME: VALUE'", help="Header to send.")
@click.option(
    "--timeout", default=60.0, type=click.FloatRange(0, min_open=True), help="In seconds."
)
@form_option
@click.pass_context
def infer(
    context: click.Context,
    /,
    model: str,
    inputs: tuple[str, ...],
    *,
    version: str,
    file: str | None,
    form: str,
    header: tuple[str, ...],
    timeout: float,
    url: str,
    zeros: bool,
) -> None:
    """Ask MODEL and print its outputs.

    VALUE is a number, several with commas, a text, a list in JSON, or @FILE: a .npy file, or
    any file for an input of BYTES. Shapes and types are the model's. --json reads an object of
    values by name, or a whole request of the protocol.
    """

    def question(client: Client) -> dict[str, Any]:
        service = HttpService(url or find_url(client), parse_headers(header), timeout)
        path = f"/v2/models/{quote(model, safe='')}"
        path += f"/versions/{quote(version, safe='')}" if version else ""
        document = None if file is None else _read_json(file)
        try:
            return _infer(service, path, inputs, document, zeros=zeros)
        except (DeadlineExceeded, RefusedRequest) as error:
            check_name(client, model)
            hint = f"`zmqtriton-ctl explain {model}` may say why"
            raise RefusedRequest(f"{error.text.rstrip()}; {hint}") from None

    found = run_with_client(context, question)
    if form == "table":
        _print(found)
    else:
        print_document(form, _to_document(found))


def _read_json(file: str) -> Any:
    try:
        with click.open_file(file, encoding="utf-8") as source:
            return json.load(source)
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"--json {file} cannot be read: {error}") from None


def _infer(
    service: HttpService, path: str, words: tuple[str, ...], document: Any, *, zeros: bool
) -> dict[str, Any]:
    """Return the answer with arrays as `data`, and how long it took."""
    # only now: the other commands do without numpy
    from zmqtriton.ctl.inferring import values

    if isinstance(document, dict) and isinstance(document.get("inputs"), list):
        if words or zeros:
            raise InvalidArgument("--json has a whole request, so no other inputs can be given")
        return _ask(service, path, document, b"")
    metadata = service.request(path).json()
    infos = [values.TensorInfo.from_metadata(entry) for entry in metadata["inputs"]]
    arrays = {} if document is None else values.read_document(document, infos)
    if words or zeros or document is None:
        arrays = {**values.read_inputs(words, infos, has_zeros=zeros), **arrays}
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
    return _ask(service, path, {"inputs": entries}, b"".join(pieces))


def _ask(service: HttpService, path: str, document: dict[str, Any], data: bytes) -> dict[str, Any]:
    binary = {"parameters": {"binary_data_output": True, **document.get("parameters", {})}}
    head = json.dumps({**document, **binary}).encode()
    headers = {"Content-Type": "application/octet-stream", _HEADER_LENGTH: str(len(head))}
    began_s = time.perf_counter()
    answer = service.request(f"{path}/infer", head + data, headers)
    took_s = time.perf_counter() - began_s
    return {**_read_answer(answer), "seconds": round(took_s, 6)}


def _read_answer(answer: Answer) -> dict[str, Any]:
    import numpy as np

    from zmqtriton.ctl.inferring import values

    length = int(answer.headers.get(_HEADER_LENGTH.lower(), len(answer.body)))
    document: dict[str, Any] = json.loads(answer.body[:length])
    position = length
    for output in document.get("outputs", ()):
        size = output.get("parameters", {}).pop("binary_data_size", None)
        if size is None:
            kind = np.object_ if output["datatype"] == "BYTES" else None
            output["data"] = np.array(output.get("data", []), kind).reshape(output["shape"])
            continue
        data = answer.body[position : position + size]
        output["data"] = values.decode(output["datatype"], output["shape"], data)
        position += size
    return document


def _print(found: dict[str, Any]) -> None:
    from zmqtriton.ctl.inferring import values

    width = terminal_width() or _USUAL_WIDTH
    version = f" version {found['model_version']}" if found.get("model_version") else ""
    click.echo(f"{found.get('model_name', '')}{version}, {found['seconds'] * 1e3:.1f} ms")
    for output in found.get("outputs", ()):
        click.echo(f"{output['name']}  {output['datatype']} {output['shape']}")
        text = values.format_array(output["data"], width - 2)
        click.echo("\n".join(f"  {line}" for line in text.splitlines() or [""]))


def _to_document(found: dict[str, Any]) -> dict[str, Any]:
    from zmqtriton.ctl.inferring import values

    outputs = [
        {key: each[key] for key in ("name", "datatype", "shape")}
        | {"data": values.to_json(each["data"])}
        for each in found.get("outputs", ())
    ]
    return {**found, "outputs": outputs}
