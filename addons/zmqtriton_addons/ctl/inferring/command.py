"""`zmqtriton-ctl infer`: asks a model over the server's HTTP port and prints its outputs."""

from __future__ import annotations

import json
import time
from typing import Any

import click

from zmqtriton.control_client import Client
from zmqtriton_addons.ctl import (
    check_name,
    form_option,
    print_document,
    run_with_client,
    terminal_width,
)
from zmqtriton_addons.ctl.http_service import Answer, HttpService, RefusedRequest
from zmqtriton_addons.ctl.inferring.options import RequestOptions, with_request_options
from zmqtriton_addons.ctl.inferring.requests import HEADER_LENGTH, PreparedRequest
from zmqtriton_floor.errors import DeadlineExceeded

_USUAL_WIDTH = 100
#: Refusals that say themselves what is missing.
_ABOUT_ACCESS = (401, 403)


@click.command()
@with_request_options
@form_option
@click.pass_context
def infer(context: click.Context, request_options: RequestOptions, form: str) -> None:
    """Ask MODEL and print its outputs.

    VALUE is a number, several with commas, a text, a list in JSON, or @FILE: a .npy file, or
    any file for an input of BYTES. Shapes and types are the model's. --json reads an object of
    values by name, or a whole request of the protocol.
    """

    def question(client: Client) -> dict[str, Any]:
        service = request_options.service(client)
        try:
            return _ask(service, request_options.path, request_options.prepare(service))
        except (DeadlineExceeded, RefusedRequest) as error:
            check_name(client, request_options.model)
            if isinstance(error, RefusedRequest) and error.status in _ABOUT_ACCESS:
                raise
            hint = f"`zmqtriton-ctl explain {request_options.model}` may say why"
            raise RefusedRequest(f"{error.text.rstrip()}; {hint}") from None

    answer = run_with_client(context, question)
    if form == "table":
        _print(answer)
    else:
        print_document(form, _to_document(answer))


def _ask(service: HttpService, path: str, request: PreparedRequest) -> dict[str, Any]:
    body, headers = request.encode()
    began_s = time.perf_counter()
    answer = service.request(f"{path}/infer", body, headers)
    took_s = time.perf_counter() - began_s
    return {**_read_answer(answer), "seconds": round(took_s, 6)}


def _read_answer(answer: Answer) -> dict[str, Any]:
    import numpy as np

    from zmqtriton_addons.ctl.inferring import values

    length = int(answer.headers.get(HEADER_LENGTH.lower(), len(answer.body)))
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


def _print(answer: dict[str, Any]) -> None:
    from zmqtriton_addons.ctl.inferring import values

    width = terminal_width() or _USUAL_WIDTH
    version = f" version {answer['model_version']}" if answer.get("model_version") else ""
    click.echo(f"{answer.get('model_name', '')}{version}, {answer['seconds'] * 1e3:.1f} ms")
    for output in answer.get("outputs", ()):
        click.echo(f"{output['name']}  {output['datatype']} {output['shape']}")
        text = values.format_array(output["data"], width - 2)
        click.echo("\n".join(f"  {line}" for line in text.splitlines() or [""]))


def _to_document(answer: dict[str, Any]) -> dict[str, Any]:
    from zmqtriton_addons.ctl.inferring import values

    outputs = [
        {key: each[key] for key in ("name", "datatype", "shape")}
        | {"data": values.to_json(each["data"])}
        for each in answer.get("outputs", ())
    ]
    return {**answer, "outputs": outputs}
