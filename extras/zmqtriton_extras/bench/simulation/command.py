"""`zmqtriton simulate DIRECTORY`: the effect of batching settings, before a model is served.

Values are checked as a load would check them. Prints a line for each setting, with the best one
marked, or JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from zmqtriton.sdk.broker import BrokerSettings
from zmqtriton.sdk.models import (
    instance_specs,
    load_config,
    pbtxt,
    with_group_defaults,
)
from zmqtriton.sdk.process import addons
from zmqtriton.sdk.wire import InvalidArgument
from zmqtriton_extras.bench.simulation.run import (
    SECOND,
    Arrival,
    Clients,
    Cost,
    Pattern,
    SimulationResult,
    SimulationRun,
    fit_cost,
    from_lines,
)

#: Share of the arrival time after which the queue is empty again. In overload the instances never
#: rest, and the queue grows as long as requests arrive.
_BUSY = 0.98
_LATE_SHARE = 0.05
#: The count of requests that came where their value is, of models with AFFINITY: that add-on's.
_HITS = "affinity_hits"
_CONFIG_FILE = "config.pbtxt"


class Change:
    """`PATH=VALUE,VALUE`: a field, by the names on the way to it, and the values to try."""

    def __init__(self, text: str) -> None:
        path, separator, values = text.partition("=")
        self.path = path.strip().split(".")
        #: commas inside a list separate nothing
        self.values = [self._value(word) for word in re.split(r",(?![^\[]*\])", values)]
        if not separator or not all(self.path):
            raise InvalidArgument(
                f"'{text}' must be FIELD.FIELD=VALUE,VALUE, such as instance_group.count=1,2"
            )

    @staticmethod
    def _value(word: str) -> Any:
        try:
            return json.loads(word)
        except ValueError:
            return word.strip()


class Setting:
    """A checked configuration, with the values that distinguish it from the others."""

    def __init__(self, label: str, config: Any) -> None:
        self.label = label
        self.config = pbtxt.to_json(config)
        self.instances = [one.name for one in instance_specs(config) if not one.passive]
        self.is_sequential = config.HasField("sequence_batching")
        self.has_affinity = "AFFINITY" in config.parameters


def settings(directory: Path, changes: Sequence[Change]) -> Iterator[Setting]:
    """Return each combination of the changes. Raises InvalidArgument."""
    name = directory.resolve().name
    original = _read_with_groups(name, directory)
    for values in itertools.product(*(change.values for change in changes)):
        document = json.loads(pbtxt.to_json(original))
        for change, value in zip(changes, values, strict=True):
            _put(document, change.path, value)
        config = load_config(name, directory, None, override=json.dumps(document))
        if config.HasField("ensemble_scheduling"):
            raise InvalidArgument("an ensemble has no instances; simulate the models of its steps")
        pairs = zip(changes, values, strict=True)
        label = " ".join(f"{change.path[-1]}={value}" for change, value in pairs)
        yield Setting(label or name, with_group_defaults(config))


def _read_with_groups(name: str, directory: Path) -> Any:
    """Read the configuration as it is written, with all instance groups. Raises InvalidArgument.

    Other defaults are filled in after a change, since they may depend on the changed field, as
    preferred batch sizes depend on the largest one.
    """
    complete = with_group_defaults(load_config(name, directory, directory / _CONFIG_FILE))
    written = pbtxt.read_config(directory / _CONFIG_FILE)
    written.ClearField("instance_group")
    written.instance_group.extend(complete.instance_group)
    return written


def _put(document: Any, path: Sequence[str], value: Any) -> None:
    """Set the value of a field; if the path leads through a list, in each of its elements."""
    first, *rest = path
    for one in document if isinstance(document, list) else [document]:
        if not isinstance(one, dict):
            raise InvalidArgument(f"the configuration has no field '{first}'; correct --set")
        if not rest:
            one[first] = value
        else:
            _put(one.setdefault(first, {}), rest, value)


def is_overloaded(outcome: SimulationResult, busy: float) -> bool:
    """True if requests of an open load arrive faster than they can be answered."""
    late_ns = outcome.end_ns - outcome.last_arrival_ns
    return busy >= _BUSY and late_ns > _LATE_SHARE * outcome.last_arrival_ns


def best_row(rows: Sequence[dict[str, Any]], *, is_open_load: bool) -> int | None:
    """Return the index of the best row that is not overloaded; None if all are.

    Under an open load the rate is given, so latency decides; under a closed load the rate decides.
    """
    able = [index for index, row in enumerate(rows) if not row["overload"]]

    def cost(index: int) -> tuple[float, ...]:
        row = rows[index]
        # of two that are equal, the one that needs fewer instances
        tail = row["p99_ms"], row["p50_ms"], -row["busy"]
        return tail if is_open_load else (-row["inferences_per_s"], *tail)

    return min(able, key=cost, default=None)


def verdict(rows: Sequence[dict[str, Any]], *, is_open_load: bool) -> str:
    """Return the sentence below the table; "" if there is nothing to compare or to warn of."""
    best = next((row["setting"] for row in rows if row["best"]), "")
    if not best:
        which = "this setting" if len(rows) == 1 else "each of these settings"
        return f"Overload with {which}: requests come faster than they are answered.\n"
    if len(rows) == 1:
        return ""
    measure = "lowest p99" if is_open_load else "highest rate"
    return f"Best: {best} ({measure} without overload)\n"


_COLUMNS = (
    ("setting", "setting"),
    ("inferences_per_s", "inferences/s"),
    ("p50_ms", "p50 ms"),
    ("p95_ms", "p95 ms"),
    ("p99_ms", "p99 ms"),
    ("max_ms", "max ms"),
    ("queue_ms", "queue ms"),
    ("mean_batch", "batch"),
    ("busy", "busy"),
    ("refused", "refused"),
    ("hits", "hits"),
)


def run_simulate(words: list[str]) -> int:
    """Run the command and return the exit status."""
    arguments = _parser().parse_args(words)
    try:
        cost = _cost(arguments)
        changes = [Change(text) for text in arguments.set]
        outcomes = [
            (setting, _simulate(setting, cost, arguments))
            for setting in settings(arguments.directory, changes)
        ]
    except (InvalidArgument, OSError, ValueError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    is_open_load = arguments.clients is None
    kinds = {"is_open_load": is_open_load, "has_values": arguments.values > 0}
    rows = [_row(setting, outcome, **kinds) for setting, outcome in outcomes]
    best = best_row(rows, is_open_load=is_open_load)
    for index, row in enumerate(rows):
        row["best"] = index == best
    if arguments.json:
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
    else:
        sys.stdout.write(_table(rows) + verdict(rows, is_open_load=is_open_load))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="zmqtriton simulate",
        description="Run a model's schedulers under a simulated load, on a simulated clock.",
        epilog="Example: zmqtriton simulate models/bert --execution 8+0.9 --rate 400 "
        "--set dynamic_batching.max_queue_delay_microseconds=0,1000,5000",
    )
    parser.add_argument("directory", type=Path, help="the model's directory, with config.pbtxt")
    costs = parser.add_mutually_exclusive_group(required=True)
    costs.add_argument(
        "--execution",
        metavar="MS[+MS]",
        help="duration of execute(): constant part, and part per inference in the batch",
    )
    costs.add_argument(
        "--measured",
        metavar="FILE",
        help="take the duration from an answer of /v2/models/NAME/stats",
    )
    parser.add_argument(
        "--spread", type=float, default=0.0, help="relative deviation of the duration, such as 0.1"
    )
    loads = parser.add_mutually_exclusive_group(required=True)
    loads.add_argument("--rate", type=float, help="requests per second, independent of the answers")
    loads.add_argument("--clients", type=int, help="number of clients, each waiting for its answer")
    loads.add_argument(
        "--arrivals", metavar="FILE", help="file with a line per request: seconds [batch size]"
    )
    parser.add_argument(
        "--pattern",
        default="poisson",
        metavar="even|poisson|burst:N",
        help="pattern of the arrivals of --rate",
    )
    parser.add_argument(
        "--requests",
        type=int,
        default=10_000,
        help="total number; sequences are completed",
    )
    parser.add_argument("--batch", type=int, default=1, help="inferences in each request")
    parser.add_argument("--sequence", type=int, default=10, help="requests in each sequence")
    parser.add_argument(
        "--values",
        type=int,
        default=0,
        help="number of different values of the model's AFFINITY among the requests",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE,VALUE",
        help="values of a field of the configuration to compare; may be repeated",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print JSON, batch sizes included")
    return parser


def _cost(arguments: argparse.Namespace) -> Cost:
    if not 0 <= arguments.spread < 10:
        raise ValueError("--spread must be a fraction from 0 to 10, such as 0.1")
    if arguments.measured:
        batches = []
        for model in json.loads(Path(arguments.measured).read_text())["model_stats"]:
            for batch in model["batch_stats"]:
                took = batch["compute_infer"]
                batches.append((batch["batch_size"], took["count"], took["ns"]))
        return fit_cost(batches, arguments.spread)
    base, _, each = arguments.execution.partition("+")
    try:
        cost = Cost(float(base), float(each or 0), arguments.spread)
    except ValueError:
        raise ValueError(
            f"--execution: '{arguments.execution}' must be milliseconds, such as 8 or 8+0.9"
        ) from None
    if not 0 < cost.base_ms + cost.each_ms < 1e6 or min(cost.base_ms, cost.each_ms) < 0:
        raise ValueError(
            f"--execution: '{arguments.execution}' ms must be above 0 and below 1000000"
        )
    return cost


def _simulate(setting: Setting, cost: Cost, arguments: argparse.Namespace) -> SimulationResult:
    if not setting.instances:
        raise ValueError(
            "the configuration has no active instance; set instance_group.count to 1 or more"
        )
    if min(arguments.requests, arguments.batch, arguments.sequence) < 1:
        raise ValueError("--requests, --batch and --sequence must be 1 or more")
    if arguments.values < 0 or (arguments.values and not setting.has_affinity):
        raise ValueError("--values must be 0, or more for a model with AFFINITY")
    of_broker = BrokerSettings(offers=addons.offers())
    seed, values = arguments.seed, arguments.values
    run = SimulationRun(setting.config, setting.instances, cost, seed, values, of_broker)
    if arguments.clients is not None:
        if arguments.clients < 1:
            raise ValueError("--clients must be 1 or more")
        length = arguments.sequence if setting.is_sequential else 0
        return run.run_closed_loop(
            Clients(arguments.clients, arguments.requests, arguments.batch, length)
        )
    if setting.is_sequential:
        raise ValueError("sequence models need --clients (each client sends one request at a time)")
    return run.open(_arrivals(arguments))


def _arrivals(arguments: argparse.Namespace) -> list[Arrival]:
    if arguments.arrivals:
        with open(arguments.arrivals) as lines:
            return from_lines(lines)
    kind, _, burst = arguments.pattern.partition(":")
    if kind not in ("even", "poisson", "burst") or bool(burst) != (kind == "burst"):
        raise ValueError(f"--pattern: '{arguments.pattern}' must be even, poisson or burst:N")
    if arguments.rate <= 0:
        raise ValueError("--rate must be more than 0")
    pattern = Pattern(
        arguments.rate, arguments.requests, kind, max(1, int(burst or 1)), arguments.batch
    )
    return list(pattern.arrivals(random.Random(arguments.seed)))


def _row(
    setting: Setting, outcome: SimulationResult, *, is_open_load: bool, has_values: bool
) -> dict[str, Any]:
    latencies = sorted(outcome.latencies_ns) or [0]
    executions = outcome.batches.total()
    seconds = outcome.end_ns / SECOND
    busy = outcome.busy_ns / outcome.end_ns / len(setting.instances)
    is_late = is_open_load and is_overloaded(outcome, busy)
    return {
        "setting": setting.label,
        "inferences_per_s": round(outcome.inferences / seconds, 1),
        **{f"p{share}_ms": _ms(_quantile(latencies, share / 100)) for share in (50, 95, 99)},
        "max_ms": _ms(latencies[-1]),
        "queue_ms": _ms(outcome.queued_ns / max(1, outcome.answered)),
        "mean_batch": round(outcome.inferences / max(1, executions), 2),
        "busy": round(busy, 3),
        "refused": outcome.refused.total(),
        "hits": round(outcome.counts.get(_HITS, 0) / max(1, outcome.answered), 3)
        if has_values
        else None,
        "overload": is_late or bool(outcome.refused),
        "batches": dict(sorted(outcome.batches.items())),
        "refusals": dict(outcome.refused),
    }


def _quantile(ordered: list[int], share: float) -> int:
    """Return the quantile of sorted values."""
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]


def _ms(nanoseconds: float) -> float:
    return round(nanoseconds / 1e6, 3)


def _mark(row: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    return "overload" if row["overload"] else "best" if row["best"] and len(rows) > 1 else ""


def _table(rows: list[dict[str, Any]]) -> str:
    columns = [column for column in _COLUMNS if rows[0][column[0]] is not None]
    cells = [[*(title for _, title in columns), ""]]
    cells += [[str(row[key]) for key, _ in columns] + [_mark(row, rows)] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for first, *others in cells:
        *numbers, mark = others
        padded = [cell.rjust(width) for cell, width in zip(numbers, widths[1:-1], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *padded, mark]).rstrip())
    for row in rows:
        for text, count in row["refusals"].items():
            lines.append(f"{row['setting']}: {count} times '{text}'")
    return "\n".join(lines) + "\n"
