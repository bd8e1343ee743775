"""The switches of a server: options that start a process, open a listener, or turn on an add-on.

The table of options has them, so a new one is tested without a line here. An option that needs a
value that no default and no kind gives has a sample.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

from tests.support.server import free_ports
from zmqtriton.command_line import parse_words
from zmqtriton.options import OPTIONS_BY_NAME, Options
from zmqtriton.options.kinds import Arity, KnownOption
from zmqtriton.start.listeners import all_ports
from zmqtriton.supervisor.machine.process_settings import read_policy

#: An address at which this machine has no server.
_NOWHERE = "http://127.0.0.1:9"
#: Words by option; {directory} is a directory and {port} a free port.
SAMPLES = {
    "access-log": ("--access-log={directory}/access.jsonl",),
    "agent-check-port": ("--agent-check-port={port}",),
    "allow-sagemaker": ("--allow-sagemaker=true", "--sagemaker-port={port}"),
    "allow-vertex-ai": (
        "--allow-vertex-ai=true",
        "--vertex-ai-port={port}",
        "--vertex-ai-default-model=add_sub",
    ),
    "announce": ("--announce={directory}/announcement.json",),
    "capture": ("--capture=add_sub", "--capture-to={directory}/captures"),
    "grpc-processes": ("--grpc-processes=2",),
    "grpc-transport": ("--grpc-transport=grpcio",),
    "load-on-demand": (
        "--load-on-demand",
        "--model-control-mode=explicit",
        "--load-model=add_sub",
    ),
    "otlp-logs": (f"--otlp-logs={_NOWHERE}",),
    "otlp-metrics": (f"--otlp-metrics={_NOWHERE}",),
    "trace-config": ("--trace-config=mode=triton", "--trace-config=triton,file={directory}/spans"),
}
#: Variables that one of them needs.
ENVIRONMENT = {"AIP_PREDICT_ROUTE": "/predict", "AIP_HEALTH_ROUTE": "/health"}
#: Options by which `replace` and zmqtriton.Server() start a server.
_OF_STARTS = {"take-over", "one-by-one", "owner-descriptor"}
#: How many servers have the switches that add something, each in four of them.
_SERVERS = 7
#: Options that leave nothing to turn on in their part of the server.
REMOVALS = {"allow-http", "allow-grpc", "allow-metrics"}


def words_of(option: KnownOption, directory: Path) -> list[str]:
    """Return words that give the option another value than its default; none if none is known."""
    if option.name in SAMPLES:
        [port] = free_ports(1)
        return [word.format(directory=directory, port=port) for word in SAMPLES[option.name]]
    default = getattr(Options(), option.field_name, None)
    if option.arity is Arity.SWITCH:
        return [f"--{option.name}"]
    if option.name in REMOVALS and default is not None:
        return [f"--{option.name}={str(not default).lower()}"]
    return []


def shape(words: list[str]) -> Any:
    """Return the processes and the listeners of a server with these words."""
    options = parse_words(["--model-repository=.", "--http-address=127.0.0.1", *words])
    return Counter(read_policy(options).frontend_roles), set(all_ports(options))


def switches() -> Iterator[str]:
    """Iterate over the names of the options that are switches."""
    without, here = shape([]), Path("/tmp")
    for option in OPTIONS_BY_NAME.values():
        words = words_of(option, here)
        if not words or option.name in _OF_STARTS:
            continue
        is_meant = option.arity is Arity.SWITCH or option.name in SAMPLES
        if is_meant or shape(words) != without:
            yield option.name


def servers_of_pairs() -> dict[str, list[str]]:
    """Return the switches of a few servers, in which each two switches are together somewhere.

    A covering array of strength two. A switch that adds something is on in four of seven servers,
    in another four than any other. Two different fours of seven meet in one server at least, and
    each has a server that the other has not: so any two switches are also on without each other.
    There are 35 fours; a plain server is the row in which all are off.

    A switch that removes a protocol would take the requests of the others away. So each two of
    these have a server of their own, where all that adds something is on: the third protocol asks.
    """
    names = sorted(switches())
    adding = [name for name in names if name not in REMOVALS]
    fours = list(combinations(range(_SERVERS), 4))
    assert len(adding) <= len(fours), "more switches need nine servers, with fives of nine"
    on = dict(zip(adding, fours, strict=False))
    servers = {
        f"four {number}": [name for name in adding if number in on[name]]
        for number in range(_SERVERS)
    }
    return servers | {
        f"without {one[6:]} and {two[6:]}": [*adding, one, two]
        for one, two in combinations([name for name in names if name in REMOVALS], 2)
    }


def words_of_all(names: Iterable[str], directory: Path) -> list[str]:
    """Return the words that turn these switches on at the same time."""
    words = [word for name in names for word in words_of(OPTIONS_BY_NAME[name], directory)]
    return [*dict.fromkeys(words)]
