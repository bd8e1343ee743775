"""`zmqtriton-ctl tune`: tries settings of a model on a server of its own.

The server that runs says where the model is and how it is configured, and is not changed. The
server of the trials reads the model's files through a link; each trial is a load with another
configuration. It ends with this process, however that ends.
"""

from __future__ import annotations

import base64
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from zmqtriton.sdk.process import Client, Server, ServerSelector
from zmqtriton.sdk.wire import InvalidArgument, NotFound
from zmqtriton_extras.bench.clients import Clients
from zmqtriton_extras.bench.command import ServerStatistics, encode
from zmqtriton_extras.bench.results import make_row
from zmqtriton_extras.capture.records import read
from zmqtriton_extras.functions.bodies import read as read_body
from zmqtriton_extras.functions.interface import interface_of
from zmqtriton_extras.functions.sources import models_in
from zmqtriton_extras.tuning.search import (
    Goal,
    Row,
    Search,
    Setting,
    config_lines,
    first_setting,
    trial_config,
)
from zmqtriton_standard.ctl.asking import run_with_client
from zmqtriton_standard.ctl.http_service import (
    HttpService,
    RefusedRequest,
    find_address,
    find_url,
)
from zmqtriton_standard.ctl.inferring import (
    PreparedRequest,
    RequestOptions,
    model_path,
    pack,
    with_request_options,
)
from zmqtriton_standard.ctl.output import LiveLine, form_option, print_document, print_note
from zmqtriton_standard.ctl.selecting import seconds_option
from zmqtriton_standard.ctl.tables import print_table
from zmqtriton_standard.ctl.values import TensorInfo

#: A first look at a trial, as a share of its time, and the share of the best rate below which the
#: trial is ended after it.
_LOOK, _HOPELESS = 0.25, 0.5
_MAX_REQUESTS = 64
#: The parameters of a request, and its arrays by the names of their inputs.
_Values = tuple[Mapping[str, Any], Mapping[str, Any]]
_HEAD = ("Instances", "Batch", "Delay us", "Req/s", "p50 ms", "p99 ms", "Mean batch", "")


@click.command()
@click.option(
    "--target",
    default="throughput",
    metavar="TARGET",
    help="throughput, or such as 'p99 200 ms': the most requests within this time.",
)
@click.option(
    "--minutes",
    default=5.0,
    type=click.FloatRange(0.05, 600),
    metavar="N",
    help="End after this time. Default is 5.",
)
@click.option(
    "--clients",
    default=16,
    type=click.IntRange(1, 4096),
    metavar="N",
    help="How many clients send at once. Default is 16.",
)
@seconds_option("--seconds", default=4.0, minimum=0.1, text="Seconds of each trial.")
@click.option(
    "--captured",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Send the model's requests that were captured in this directory.",
)
@click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="The model's directory, if it is not in a local repository of the server.",
)
@with_request_options
@form_option
@click.pass_context
def tune(
    context: click.Context,
    *,
    request_options: RequestOptions,
    target: str,
    minutes: float,
    clients: int,
    seconds: float,
    captured: Path | None,
    directory: Path | None,
    form: str,
) -> None:
    """Find instances, batch and delay of MODEL for a target, by trial.

    Sends requests to a server of its own that serves MODEL in each setting, and prints the lines to
    write. The requests were captured, or are made from values as for `infer`; without either, they
    are the examples of a function. Of a stream, all of its time counts. The server that runs is
    not changed; both share this machine, so leave it in peace.
    """
    model = request_options.model

    def question(client: Client) -> Search:
        goal = Goal.parse(target)
        config = _read_config(client, model)
        first = first_setting(config)
        # a function's own delay is added to each configuration
        has_own_delay = first.delay != "0" and interface_of(config) is not None
        if has_own_delay:
            print_note("the function sets its delay, which is kept: remove it to have others tried")
        cores = len(os.sched_getaffinity(0))
        search = Search(first, goal, cores, keeps_delay=has_own_delay)
        requests = _requests(request_options, client, config, captured)
        place = directory or _directory_of(client, model)
        with tempfile.TemporaryDirectory(prefix="zmqtriton-tune-") as folder:
            repository = place if place.is_file() else Path(folder)
            if place.is_dir():
                (repository / model).symlink_to(place.resolve())
            ports = {"allow_http": True, "http_port": 0, "allow_grpc": True, "grpc_port": 0}
            local = {"http_address": "127.0.0.1", "grpc_address": "127.0.0.1"}
            with Server(
                repository, model_control_mode="explicit", **ports, **local
            ).start() as server:
                trials = _Trials(server, request_options, requests, config, goal)
                trials.run(search, clients, seconds, time.monotonic() + 60 * minutes)
        return search

    search = run_with_client(context, question)
    lines = config_lines(search.best, search.goal)
    if form != "table":
        rows = [{**setting._asdict(), **row} for setting, row in search.rows.items()]
        best = search.best._asdict()
        print_document(form, {"model": model, "rows": rows, "best": best, "lines": lines})
        return
    print_table(_HEAD, [_cells(setting, row, search) for setting, row in search.rows.items()])
    if search.goal.column and search.goal.value(search.rows[search.best])[0] < 1:
        click.echo(f"No setting reaches {search.goal.text}; this is the nearest.")
    *of_config, of_model = lines
    click.echo("\n".join(["In config.pbtxt:", *of_config, "or, of a function:", of_model]))


def _cells(setting: Setting, row: Row, search: Search) -> list[str]:
    figures = (row.get(key) for key in ("requests_per_s", "p50_ms", "p99_ms", "batch_size"))
    texts = ["-" if value is None else f"{value:.3g}" for value in figures]
    mark = "best" if setting == search.best else row.get("note", "")
    return [str(setting.instances), str(setting.batch or 1), setting.delay, *texts, mark]


def _read_config(client: Client, model: str) -> dict[str, Any]:
    """Return a model's configuration. Raises NotFound, and InvalidArgument for other kinds."""
    client.check_model(model)
    config: dict[str, Any] = client.call("config", {"model": model}, Client.QUICK_TIMEOUT_S)
    for field, advice in (
        (
            "ensemble_scheduling",
            "an ensemble has no instances or batches of its own, so it cannot be tuned: tune the "
            "models of its steps",
        ),
        (
            "sequence_batching",
            "the requests of a sequence need their order and one instance, so trials cannot repeat "
            "them: measure each setting with `zmqtriton-ctl bench`",
        ),
    ):
        if field in config:
            raise InvalidArgument(advice)
    return config


def _directory_of(client: Client, model: str) -> Path:
    """Return a model's directory, or a function's file, on this machine. Raises NotFound."""
    rows = client.call("options", timeout_s=Client.QUICK_TIMEOUT_S)
    values = [row["value"] for row in rows if row["option"] == "model-repository"]
    flat = [each for value in values for each in (value if isinstance(value, list) else [value])]
    working = Path(f"/proc/{client.identity.pid}/cwd").resolve()
    for repository in flat:
        path = Path(working, repository)
        if (path / model).is_dir():
            return path / model
        # `zmqtriton run` has served one model, or the functions of one file
        is_model = path.is_dir() and path.resolve().name == model
        if is_model or (path.is_file() and model in models_in(path)):
            return path
    raise NotFound(f"'{model}' is in no local repository: name its files by --directory")


def _is_stream(config: Mapping[str, Any]) -> bool:
    return bool(config.get("model_transaction_policy", {}).get("decoupled"))


def _requests(
    options: RequestOptions, client: Client, config: Mapping[str, Any], captured: Path | None
) -> list[PreparedRequest]:
    """Return the requests to send. Raises InvalidArgument, and NotFound without any."""
    service = options.service(client)
    if captured is None and (options.inputs or options.file or options.fill):
        return [options.prepare(service)]
    metadata = service.request(options.path).json()
    infos = [TensorInfo.from_metadata(entry) for entry in metadata["inputs"]]
    examples = _examples(config) if captured is None else _captured(captured, options.model)
    requests = []
    for parameters, arrays in islice(examples, _MAX_REQUESTS):
        document, pieces = pack(infos, arrays)
        requests.append(PreparedRequest({**document, "parameters": parameters}, pieces))
    if requests:
        return requests
    if captured is not None:
        raise NotFound(f"{captured} has no whole request for '{options.model}': capture some")
    raise InvalidArgument(
        f"'{options.model}' has no examples: name captured requests by --captured, give values "
        "as NAME=VALUE, or add --random or --zeros"
    )


def _examples(config: Mapping[str, Any]) -> Iterator[_Values]:
    """Return the parameters and arrays of each example of a function."""
    interface = interface_of(config)
    if interface is not None:
        for example in interface.examples:
            request = read_body(interface, "", json.dumps(example).encode())
            yield request.parameters, request.inputs


def _captured(directory: Path, model: str) -> Iterator[_Values]:
    """Return the parameters and arrays of each request that was captured whole."""
    for record in read(directory):
        if record.model == model and record.is_whole and not record.has_failed:
            request = record.document["request"]
            arrays = {entry["name"]: record.array(entry) for entry in request["inputs"]}
            yield request.get("parameters", {}), arrays


class _Trials:
    """Loads and measures settings on the server of the trials."""

    def __init__(
        self,
        server: Server,
        options: RequestOptions,
        requests: Sequence[PreparedRequest],
        config: Mapping[str, Any],
        goal: Goal,
    ) -> None:
        is_stream = _is_stream(config)
        with ServerSelector(server.runtime_directory).connect() as client:
            url = find_url(client)
            address = find_address(client, "grpc") if is_stream else ""
        self._service = HttpService(url, {}, options.timeout)
        self._model, self._path = options.model, model_path(options.model, None)
        self._config, self._goal = config, goal
        encoded = [
            base64.b64encode(
                encode(self._path, each, is_stream=True)
                if is_stream
                else self._service.raw_request(f"{self._path}/infer", *each.encode())
            ).decode()
            for each in requests
        ]
        self._plan: dict[str, Any] = {
            "kind": "stream" if is_stream else "http",
            "address": address or self._service.address,
            "has_tls": False,
            "is_decoupled": is_stream,
            "headers": {},
            "timeout_s": options.timeout,
            "request": encoded[0],
            "requests": encoded,
        }

    def run(self, search: Search, clients: int, seconds: float, end_s: float) -> None:
        with LiveLine(self._model) as line, Clients(1) as processes:

            def measure(setting: Setting, best: Row | None) -> Row | None:
                if processes.is_interrupted or (best is not None and time.monotonic() > end_s):
                    return None
                line.show(f"trial {len(search.rows) + 1}: {setting.describe()}")
                return self._measure(setting, best, processes, clients, seconds)

            search.run(measure)
            if processes.is_interrupted:
                print_note("ended by Ctrl-C")

    def _measure(
        self, setting: Setting, best: Row | None, processes: Clients, clients: int, seconds: float
    ) -> Row:
        config = trial_config(self._config, setting, self._goal)
        body = json.dumps({"parameters": {"config": json.dumps(config)}}).encode()
        try:
            path = f"/v2/repository/models/{quote(self._model, safe='')}/load"
            self._service.request(path, body, {"Content-Type": "application/json"})
        except RefusedRequest as error:
            if best is None:
                raise
            return {"requests_per_s": 0.0, "failed": 1, "note": error.text.strip()[:60]}
        statistics = ServerStatistics(self._service, self._path)
        for length in (seconds * _LOOK, seconds):
            measured, before, after = processes.measure(
                self._plan, clients, seconds=length, read=statistics.read
            )
            row = make_row(clients, 0.0, measured, before, after)
            is_hopeless = best is not None and (
                row["requests_per_s"] < _HOPELESS * best["requests_per_s"]
            )
            if is_hopeless or processes.is_interrupted:
                return {**row, "note": "hopeless" if is_hopeless else ""}
        return row
