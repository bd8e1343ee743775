"""Attacks on captures of a real server, smaller than those of `attacks.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.server import Server, ask_add_sub
from tests.support.waiting import eventually
from zmqtriton_extras.capture.records import read
from zmqtriton_extras.capture.tests.attacks import (
    LIMIT_BYTES,
    MAX_MORE_MIB,
    captures_of,
    capturing,
    counts,
    many_files,
    tiny,
    watch,
    without_end,
)

pytestmark = pytest.mark.system

_ODD: list[dict[str, Any]] = [
    {"id": "../../etc/passwd\u0000\n\"'\u2028\\"},
    {"parameters": {"least": -(2**63), "most": 2**63 - 1, "text": "\ud83d", "is": True}},
    {"parameters": {"number": 1e308, "small": 5e-324, "": "no name", "a\nb": "two lines"}},
    {"parameters": {f"p{number}": "x" * 100 for number in range(1000)}},
    {"parameters": {"sequence_id": "\u202e../x", "priority": 2**63, "timeout": 2**62}},
]


def test_odd_values_cost_no_request_and_stay_in_their_records(tmp_path: Path) -> None:
    """Without captures they are answered likewise."""
    with capturing(tmp_path) as server:
        plain = Server(tmp_path / "plain", ["add_sub"], frontends=())
        with plain:
            expected = [ask(plain, more) for more in _ODD]
        answered = [ask(server, more) for more in _ODD]
        good = answered.count(200)
        eventually(lambda: counts(server, "add_sub")["written"] >= good, 60)

    assert expected == answered
    assert good >= 2
    assert {"captures", "run", "s", "plain"} >= {path.name for path in tmp_path.iterdir()}
    ids = [record.document["request"].get("id") for record in read(captures_of(server))]
    assert _ODD[0]["id"] in ids


def ask(server: Server, more: dict[str, Any]) -> int:
    rows = [
        {"name": name, "shape": [1, 16], "datatype": "FP32", "data": [1.0] * 16}
        for name in ("INPUT0", "INPUT1")
    ]
    return server.request_json("/v2/models/add_sub/infer", {"inputs": rows, **more})[0]


@pytest.mark.long(
    "extras/capture/test_assembly.py::test_a_request_takes_room_for_its_names_and_parameters_too",
    "extras/capture/test_segments.py::test_a_limit_below_the_size_of_a_segment_holds",
)
def test_floods_stay_within_memory_and_disk_and_honest_requests_pass(tmp_path: Path) -> None:
    with capturing(tmp_path) as server:
        assert ask_add_sub(server) == 200
        with watch(server) as watched:
            tiny(server, 30_000)
            many_files(server, 3000)
            without_end(server, 20_000)

    assert not watched.failed
    assert max(watched.more_mib.values(), default=0) <= MAX_MORE_MIB
    assert watched.disk_bytes <= 2 * LIMIT_BYTES
