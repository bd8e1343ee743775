"""One client that makes a server wait where it can, in a process of its own.

python -m tests.faults.standstills.hostile NAME HTTP_PORT GRPC_PORT
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

from tests.support.server import status_of
from tests.support.waits.endless_requests import MIB, send_endless_body, send_endless_message

#: Models that these ask for, and nobody else.
CONFIGURED, PRINTING = "configured", "printing"
_SENT_BYTES = 130 * MIB
_HELD_S = 3.0
_PRINTS = 'print("said " + "x" * 1000)\nreturn [reply("")]'
#: Attackers have machines of their own, and here they have what others leave.
_NICENESS = 10


def _configs() -> Iterator[str]:
    """Iterate over configurations of a load that take long to read, without end."""
    unclosed = ['{"' + '\\"' * (size // 2) for size in (30_000, 250_000, 500_000)]
    inputs = [{"name": f"I{n}", "data_type": "TYPE_FP32", "dims": [1]} for n in range(12_000)]
    many = json.dumps({"backend": "python", "input": inputs})
    groups = json.dumps({"backend": "python", "instance_group": [{"count": 0}] * 15_000})
    return itertools.cycle([*unclosed, many, groups, "{" * 200_000, '{"a":' * 50_000])


def send_configs(http_port: int, grpc_port: int) -> None:
    url = f"http://127.0.0.1:{http_port}/v2/repository/models/{CONFIGURED}/load"
    for config in _configs():
        _post(url, {"parameters": {"config": config}})


def send_messages(http_port: int, grpc_port: int) -> None:
    """Send parts of messages that are announced as larger than they may be, by both protocols."""
    while True:
        with suppress(OSError), ExitStack() as stack:  # the server ends before we do
            stack.enter_context(send_endless_message(grpc_port, _SENT_BYTES))
            stack.enter_context(send_endless_body(http_port, _SENT_BYTES))
            time.sleep(_HELD_S)


def ask_who_prints(http_port: int, grpc_port: int) -> None:
    """Ask a model that prints a kilobyte for each request."""
    url = f"http://127.0.0.1:{http_port}/v2/models/{PRINTING}/generate"
    while True:
        _post(url, {"SCRIPT": _PRINTS, "ARGUMENT": ""})
        time.sleep(0.005)


def _post(url: str, document: object) -> None:
    status_of(urllib.request.Request(url, json.dumps(document).encode()), 60)


KINDS: dict[str, Callable[[int, int], None]] = {
    "configs": send_configs,
    "messages": send_messages,
    "prints": ask_who_prints,
}

if __name__ == "__main__":
    os.nice(_NICENESS)
    KINDS[sys.argv[1]](*map(int, sys.argv[2:]))
