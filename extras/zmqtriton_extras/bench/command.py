"""`zmqtriton-ctl bench`: measures a model of a running server from this machine."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import click

import zmqtriton_protos
from zmqtriton.sdk.process import Client, NoServerError
from zmqtriton.sdk.wire import InvalidArgument, ZmqTritonError
from zmqtriton_extras.bench import results
from zmqtriton_extras.bench.clients import Clients
from zmqtriton_extras.bench.results import Reading, make_row, server_totals
from zmqtriton_standard.ctl.asking import EXIT_REFUSED, run_with_client
from zmqtriton_standard.ctl.http_service import HttpService, RefusedRequest, find_address
from zmqtriton_standard.ctl.inferring import (
    PreparedRequest,
    RequestOptions,
    with_request_options,
)
from zmqtriton_standard.ctl.output import LiveLine, form_option, print_document, print_note
from zmqtriton_standard.ctl.selecting import seconds_option
from zmqtriton_standard.ctl.tables import print_table

#: Fields of a parameter by the type of its value; all others are texts.
_FIELDS = {bool: "bool_param", int: "int64_param", float: "double_param"}


def encode(path: str, request: PreparedRequest, *, is_stream: bool) -> bytes:
    """Return the bytes of a ModelInferRequest. Raises InvalidArgument for values in JSON."""
    if not request.pieces and request.document.get("inputs"):
        raise InvalidArgument("over gRPC, inputs are given by name and not as a whole request")
    _, _, _, model, *version = path.split("/")
    message = zmqtriton_protos.message("inference.ModelInferRequest")()
    message.model_name = unquote(model)
    message.model_version = unquote(version[1]) if version else ""
    for entry in request.document["inputs"]:
        message.inputs.add(name=entry["name"], datatype=entry["datatype"], shape=entry["shape"])
    message.raw_input_contents.extend(request.pieces)
    for name, value in request.document.get("parameters", {}).items():
        setattr(message.parameters[name], _FIELDS.get(type(value), "string_param"), value)
    if is_stream:
        message.parameters["triton_enable_empty_final_response"].bool_param = True
    return bytes(message.SerializeToString())


_COLUMNS = {
    "Clients": "concurrency",
    "Req/s": "requests_per_s",
    "Mean ms": "mean_ms",
    "p50": "p50_ms",
    "p90": "p90_ms",
    "p99": "p99_ms",
    "Failed": "failed",
    "Queue ms": "queue_ms",
    "Compute ms": "compute_ms",
    "Batch": "batch_size",
}
_COLUMNS_OF_STREAMS = {"First ms": "first_response_ms", "Between ms": "between_responses_ms"}
_MAX_CLIENTS = 4096


class Options(NamedTuple):
    """The user's choices for the measurement."""

    concurrency: tuple[int, ...]
    rate: float
    seconds: float
    processes: int


def _parse_concurrency(
    context: click.Context, parameter: click.Parameter, value: str
) -> tuple[int, ...]:
    try:
        counts = tuple(int(word) for word in value.split(","))
    except ValueError:
        counts = ()
    if not counts or not all(1 <= count <= _MAX_CLIENTS for count in counts):
        raise click.BadParameter(f"'{value}' must be a list such as 1,8,32, up to {_MAX_CLIENTS}")
    return counts


@click.command()
@click.option(
    "--concurrency",
    default="1,8,32",
    metavar="N,N",
    callback=_parse_concurrency,
    help="How many clients ask at once, a row for each number. Default is 1,8,32.",
)
@click.option(
    "--rate",
    default=0.0,
    type=click.FloatRange(0),
    metavar="R",
    help="Requests per second in all. Default is as fast as answers come.",
)
@seconds_option("--seconds", default=5.0, minimum=0.1, text="Seconds of each row.")
@click.option(
    "--processes",
    default=1,
    type=click.IntRange(1, 64),
    metavar="N",
    help="Processes that the clients are spread over. Default is 1.",
)
@click.option(
    "--cores",
    "has_cores",
    is_flag=True,
    help="Measure twice, with CORES=all and =auto: MODEL is loaded so, and then as before.",
)
@click.option("--grpc", "has_grpc", is_flag=True, help="Ask over gRPC; streams always are.")
@with_request_options
@form_option
@click.pass_context
def bench(
    context: click.Context,
    *,
    request_options: RequestOptions,
    concurrency: tuple[int, ...],
    rate: float,
    seconds: float,
    processes: int,
    has_cores: bool,
    has_grpc: bool,
    form: str,
) -> None:
    """Measure MODEL under load, and show where the time goes.

    All clients send the same request, made from values as for `infer`. Each client sends again when
    it has its response; with --rate, when a request is due, and times count from that moment.
    Ctrl-C ends it, and prints its results.
    """
    options = Options(concurrency, rate, seconds, processes)

    def question(client: Client) -> list[dict[str, Any]]:
        service = request_options.service(client)
        try:
            request = request_options.prepare(service)
            plan = _plan(client, service, request_options.path, request, has_grpc=has_grpc)
        except RefusedRequest:
            client.check_model(request_options.model)
            raise
        plan |= {"headers": request_options.headers, "timeout_s": request_options.timeout}
        statistics = ServerStatistics(service, request_options.path, plan.pop("steps"))

        def measure() -> list[dict[str, Any]]:
            return _measure(statistics, plan, options, request_options.model)

        if not has_cores:
            return measure()
        config = service.request(f"{request_options.path}/config").json()
        return _with_and_without_cores(client, config, measure)

    rows = run_with_client(context, question)
    advice = results.judge(request_options.model, rows)
    if form == "table":
        columns = {"Cores": "cores"} | _COLUMNS if has_cores else _COLUMNS
        if any("first_response_ms" in row for row in rows):
            columns = columns | _COLUMNS_OF_STREAMS
        print_table(tuple(columns), [[_show(row.get(k)) for k in columns.values()] for row in rows])
        for sentence in advice:
            click.echo(f"{sentence}.")
    else:
        print_document(form, {"model": request_options.model, "rows": rows, "advice": advice})
    if not any(row["requests_per_s"] for row in rows):
        sys.exit(EXIT_REFUSED)


def _plan(
    client: Client, service: HttpService, path: str, request: PreparedRequest, *, has_grpc: bool
) -> dict[str, Any]:
    """Return the plan for the clients."""
    config = service.request(f"{path}/config").json()
    is_stream = bool(config.get("model_transaction_policy", {}).get("decoupled"))
    if is_stream or has_grpc:
        # only now: it reads protobuf definitions

        data = encode(path, request, is_stream=is_stream)
        kind, address = "stream" if is_stream else "grpc", find_address(client, "grpc")
    else:
        kind, address = "http", service.address
        body, headers = request.encode()
        data = service.raw_request(f"{path}/infer", body, headers)
    return {
        "kind": kind,
        "address": address,
        "has_tls": service.url.startswith("https:"),
        "is_decoupled": is_stream,
        "steps": sorted(
            {step["model_name"] for step in config.get("ensemble_scheduling", {}).get("step", ())}
        ),
        "request": base64.b64encode(data).decode(),
    }


class ServerStatistics:
    """The server's statistics about the model and about the models of an ensemble's steps."""

    def __init__(self, service: HttpService, path: str, steps: Sequence[str] = ()) -> None:
        self._service = service
        self._path = path
        self._steps = steps

    def read(self) -> Reading | None:
        """Return the current counts; None without a server, or without the right to read them."""
        try:
            steps = {step: self._read(f"/v2/models/{quote(step)}") for step in self._steps}
            return Reading(self._read(self._path), steps)
        except (ZmqTritonError, NoServerError, KeyError):
            return None

    def _read(self, path: str) -> dict[str, int]:
        return server_totals(self._service.request(f"{path}/stats").json())


def _measure(
    statistics: ServerStatistics, plan: Mapping[str, Any], options: Options, model: str
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    with LiveLine(model) as line, Clients(options.processes) as clients:
        for count in options.concurrency:
            line.show(f"{count} client{'s' * (count != 1)}, row {len(rows) + 1}")
            measured, before, after = clients.measure(
                plan, count, seconds=options.seconds, rate=options.rate, read=statistics.read
            )
            rows.append(make_row(count, options.rate, measured, before, after))
            if clients.is_interrupted:
                print_note("ended by Ctrl-C")
                break
    return rows


def _with_and_without_cores(
    client: Client, config: dict[str, Any], measure: Callable[[], list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Return the rows of a model whose instances share all cores, and have cores of their own."""
    load, rows = {"model": config["name"]}, list[dict[str, Any]]()
    try:
        for cores in ("all", "auto"):
            config.setdefault("parameters", {})["CORES"] = {"string_value": cores}
            client.call("load", load | {"parameters": {"config": json.dumps(config)}})
            rows += [{"cores": cores, **row} for row in measure()]
    finally:
        client.call("load", load | {"parameters": {}})
    return rows


def _show(value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or "-"
    return f"{value:.0f}" if isinstance(value, int) or value >= 1000 else f"{value:.3g}"
