"""`zmqtriton-ctl stats` and `top`: rates, latencies and batches of models over an interval."""

from __future__ import annotations

import os
import select
import shutil
import sys
import termios
import time
import tty
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import click

from zmqtriton.sdk.models import figures as shown_figures
from zmqtriton.sdk.process import Client, addons
from zmqtriton.sdk.wire import NotFound, Unavailable, ZmqTritonError, metrics
from zmqtriton_standard.ctl.asking import run_with_client
from zmqtriton_standard.ctl.output import print_document, with_format
from zmqtriton_standard.ctl.selecting import MODEL, seconds_option
from zmqtriton_standard.ctl.status import use_of_models
from zmqtriton_standard.ctl.tables import print_table, shorten

HEADER = (
    "Model",
    "Req/s",
    "Fail/s",
    "Mean ms",
    "Queue ms",
    "Compute ms",
    "Batch",
    "Pending",
    "Active",
    "CPU %",
    "Memory",
)
#: The column of servers with --token-metrics.
_TOKENS = "Tokens/s"
_AFFINITY = "Affine %"
#: The column of models that have executed something, and have instances.
_SPARE = "Spare/s"
#: The column of models that have memory on GPUs, where NVIDIA's library lists processes.
_GPU = "GPU"
#: Lines of the screen that are not for models: title, table head, and the number of hidden ones.
_LINES_AROUND = 4
#: The width of a terminal that shows all columns next to each other.
_WIDE = 150
_MAX_KEYS = 1024
_CLEAR = "\x1b[H\x1b[2J"


class Rates(NamedTuple):
    """The figures of a version over an interval; None without requests in it."""

    model: str
    version: int
    requests_per_s: float
    failures_per_s: float
    mean_ms: float | None
    queue_ms: float | None
    compute_ms: float | None
    batch_size: float | None
    pending: int
    #: Requests that instances have, such as open streams.
    active: int = 0
    #: Processor time of its instances in percent of one core; None without a process, as is memory.
    cpu_percent: float | None = None
    memory_bytes: int | None = None
    #: Tokens of text; None for a model that makes none, or without --token-metrics.
    tokens_per_s: float | None = None
    #: The share of requests that went to the instance of their affinity.
    affinity_percent: float | None = None
    #: The memory of its instances on GPUs.
    gpu_bytes: int | None = None
    #: Requests per second that fit in addition: ready instances divided by the compute time.
    spare_per_s: float | None = None


def compute_rates(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]], seconds: float
) -> list[Rates]:
    """Compute the rates between two readings; a model whose counters restarted counts from zero."""
    earlier = {(row["model"], row["version"]): row for row in before}
    rates = []
    for row in after:
        last = earlier.get((row["model"], row["version"]), {})
        begins_anew = row["succeeded"] < last.get("succeeded", 0)
        grown = {
            key: value - (0 if begins_anew else last.get(key, 0))
            for key, value in row.items()
            if isinstance(value, (int, float))
        }
        succeeded, executions = grown["succeeded"], grown["executions"]
        batch_size = grown["inferences"] / executions if executions > 0 else None
        compute_ms = _mean_ms(grown["compute_ns"], succeeded)
        rates.append(
            Rates(
                row["model"],
                row["version"],
                requests_per_s=succeeded / seconds,
                failures_per_s=grown["failed"] / seconds,
                mean_ms=_mean_ms(grown["success_ns"], succeeded),
                queue_ms=_mean_ms(grown["queue_ns"], succeeded),
                compute_ms=compute_ms,
                batch_size=batch_size,
                pending=row["pending"],
                active=max(0, row.get("unanswered", 0) - row["pending"]),
                cpu_percent=_cpu_percent(row, last, seconds),
                memory_bytes=row.get("memory_bytes"),
                tokens_per_s=_tokens_per_s(row, last, seconds),
                affinity_percent=_affinity_percent(grown),
                gpu_bytes=row.get("gpu_bytes"),
                spare_per_s=_spare_per_s(row, grown, seconds),
            )
        )
    return rates


def _spare_per_s(
    row: Mapping[str, Any], grown: Mapping[str, float], seconds: float
) -> float | None:
    """Return the number of further requests that would fit, with batches of the same size.

    The time of an execution counts once for each of its requests.
    """
    instances, succeeded = row.get("instances", 0), grown["succeeded"]
    executions, compute_ns = grown["executions"], grown["compute_ns"]
    if not instances or succeeded <= 0 or executions <= 0 or compute_ns <= 0:
        return None
    fitting: float = instances * (succeeded / executions) / (compute_ns / succeeded / 1e9)
    return max(0.0, fitting - succeeded / seconds)


def _cpu_percent(row: Mapping[str, Any], last: Mapping[str, Any], seconds: float) -> float | None:
    if "cpu_s" not in row:
        return None
    # less than before if an instance has gone meanwhile
    spent_s: float = row["cpu_s"] - last.get("cpu_s", 0.0)
    return 100 * max(0.0, spent_s) / seconds


def _tokens_per_s(row: Mapping[str, Any], last: Mapping[str, Any], seconds: float) -> float | None:
    if "tokens" not in row:
        return None
    # less than before if their process was replaced meanwhile
    grown: int = row["tokens"] - last.get("tokens", 0)
    return (grown if grown >= 0 else row["tokens"]) / seconds


def _affinity_percent(grown: Mapping[str, float]) -> float | None:
    hits = grown.get("affinity_hits", 0)
    placed = hits + grown.get("affinity_misses", 0)
    return 100 * hits / placed if placed > 0 else None


def _mean_ms(nanoseconds: float, count: float) -> float | None:
    return nanoseconds / count / 1e6 if count > 0 else None


_interval_option = seconds_option(
    "--interval", default=1.0, minimum=0.1, text="Seconds between two looks."
)


@click.command()
@click.argument("model", type=MODEL, default="")
@_interval_option
@click.option(
    "--count", default=1, type=click.IntRange(1), metavar="N", help="How often; default is 1."
)
@click.option("--total", is_flag=True, help="Since the model was loaded, without waiting.")
@with_format
@click.pass_context
def stats(
    context: click.Context, model: str, interval: float, count: int, form: str, *, total: bool
) -> None:
    """Show rates, latencies and batch sizes of models.

    They are measured over the next --interval seconds.
    """
    if total and count > 1:
        raise click.UsageError("--total prints one table; leave out --count")

    def question(client: Client) -> None:
        readings = _totals(client, model) if total else _readings(client, model, interval)
        for number, rates in zip(range(count), readings, strict=False):
            _show(rates, form, is_first=not number)

    run_with_client(context, question)


@click.command()
@click.argument("model", type=MODEL, default="")
@_interval_option
@click.pass_context
def top(context: click.Context, model: str, interval: float) -> None:
    """Show `stats`, refreshed every second, until q or Ctrl-C."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("top needs a terminal; `stats --count N` prints N tables")
    with suppress(KeyboardInterrupt), _key_by_key():
        run_with_client(context, lambda client: _watch(client, model, interval))


def _watch(client: Client, model: str, interval: float) -> None:
    for rates in _readings(client, model, interval, _is_quit):
        columns, lines = shutil.get_terminal_size()
        title = f"{time.strftime('%H:%M:%S')}  q: quit  {client.identity.describe()}"
        click.echo(f"{_CLEAR}{shorten(title, columns)}\n")
        busiest = sorted(rates, key=lambda each: each.requests_per_s, reverse=True)
        # a narrow terminal has the last figures of each row below it
        room = max(1, (lines - _LINES_AROUND) // (1 if columns > _WIDE else 2))
        _print(busiest[:room])
        if len(busiest) > room:
            click.echo(f"... and {len(busiest) - room} more", nl=False)
        sys.stdout.flush()


@contextmanager
def _key_by_key() -> Iterator[None]:
    """Have the terminal deliver each key at once."""
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _is_quit(seconds: float) -> bool:
    """Wait a number of seconds; return True at once for the key q, or without a keyboard."""
    end_s = time.monotonic() + seconds
    while (left_s := end_s - time.monotonic()) > 0:
        if select.select([sys.stdin], [], [], left_s)[0]:
            # not by sys.stdin, which would read ahead
            keys = os.read(sys.stdin.fileno(), _MAX_KEYS)
            if not keys or b"q" in keys.lower():
                return True
    return False


def _readings(
    client: Client, model: str, interval: float, pause: Callable[[float], bool | None] = time.sleep
) -> Iterator[list[Rates]]:
    """Yield the rates of one interval after another, until `pause` returns True."""
    before, began_s = _read(client, model), time.monotonic()
    while not pause(interval):
        after, now_s = _read(client, model), time.monotonic()
        yield compute_rates(before, after, now_s - began_s)
        before, began_s = after, now_s


def _totals(client: Client, model: str) -> Iterator[list[Rates]]:
    """Yield the figures since the load; their rates are over the time since the server's start."""
    yield compute_rates([], _read(client, model), max(1.0, time.time() - client.identity.started_s))


def _read(client: Client, model: str) -> list[dict[str, Any]]:
    status = client.call("status", timeout_s=Client.QUICK_TIMEOUT_S)
    counts = status["counts"]
    if counts is None:
        raise Unavailable(
            "timed out: the broker has not answered; `zmqtriton-ctl doctor` may say why"
        )
    rows = [row for row in counts if model in ("", row["model"])]
    if model and not rows:
        client.check_model(model)
        raise NotFound(f"model '{model}' is not loaded; `zmqtriton-ctl explain {model}` says why")
    use, tokens = use_of_models(status["processes"]), _made_tokens(client.directory)
    on_gpus = _gpu_bytes(client, status["processes"])
    ready = Counter(
        (row["model"], row["version"])
        for row in status["processes"]
        if row["role"] == "stub" and row.get("state") == "READY"
    )
    for row in rows:
        one = use.get((row["model"], row["version"]))
        row.update({} if one is None else one._asdict())
        row["instances"] = ready[row["model"], row["version"]]
        row["gpu_bytes"] = on_gpus.get((row["model"], row["version"]))
        made = tokens.get(f"{row['model']}:{row['version']}")
        row.update({} if made is None else {"tokens": made})
    return rows


def _made_tokens(directory: Path) -> Mapping[str, int]:
    """Return the tokens by `model:version`; empty if the server does not count tokens."""
    counts = metrics.TOKENS.first_of(addons.offers())
    return counts.made_tokens(directory) if counts else {}


def _gpu_bytes(
    client: Client, processes: Iterable[Mapping[str, Any]]
) -> Mapping[tuple[str, int], int]:
    """Return the bytes of instances on GPUs, by model and version; empty if not measured."""
    try:
        figures = client.call("latest", timeout_s=Client.QUICK_TIMEOUT_S)["processes"]
    except ZmqTritonError:
        return {}  # nobody measures
    sums: Counter[tuple[str, int]] = Counter()
    for pid, row in {row["pid"]: row for row in processes if row["role"] == "stub"}.items():
        sums[row["model"], row["version"]] += sum(
            figures.get(str(pid), {}).get("gpu_bytes", {}).values()
        )
    return +sums


def _show(rates: Sequence[Rates], form: str, *, is_first: bool) -> None:
    if form != "table":
        print_document(form, [each._asdict() for each in rates])
        return
    if not is_first:
        click.echo()
    _print(rates)
    sys.stdout.flush()


def _print(rates: Sequence[Rates]) -> None:
    columns = {
        _TOKENS: [_figure(each.tokens_per_s) for each in rates],
        _AFFINITY: [_figure(each.affinity_percent) for each in rates],
        _SPARE: [_figure(each.spare_per_s) for each in rates],
        _GPU: [shown_figures.format_bytes(each.gpu_bytes) for each in rates],
    }
    shown = {name: texts for name, texts in columns.items() if {*texts} - {_figure(None)}}
    rows = [(*_row(each), *own) for each, *own in zip(rates, *shown.values(), strict=True)]
    print_table((*HEADER, *shown), rows, has_figures=True)


def _row(rates: Rates) -> Sequence[str]:
    shown = (rates.requests_per_s, rates.failures_per_s, rates.mean_ms, rates.queue_ms)
    return (
        f"{rates.model}:{rates.version}",
        *map(_figure, (*shown, rates.compute_ms, rates.batch_size)),
        str(rates.pending),
        str(rates.active),
        _figure(rates.cpu_percent),
        shown_figures.format_bytes(rates.memory_bytes),
    )


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"
