"""`python -m tests.bench.batches COMMAND …`: which batches form here, and which in real Triton.

COMMAND starts a tritonserver, as for tests/conformance/record.py. Both get the same models and the
same requests in the same order. `--record` keeps what Triton did, for test_tables.py; `--only
TEXT` takes the configurations whose name holds it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.conformance.arrivals import Configuration
from tests.conformance.batches import (
    LIMIT_S,
    Place,
    Result,
    keep,
    play_all,
    play_ours,
    write_repository,
)
from tests.conformance.configurations import CONFIGURATIONS
from tests.conformance.record import Triton
from tests.support.server import status_of
from tests.support.waiting import eventually

#: What threads of Triton need to look at what was queued; nothing tells that they have.
SETTLE_S = 0.5


class _Repository:
    """All configurations, for Triton."""

    options: Sequence[str] = ()

    def __init__(self, scratch: Path, configurations: Sequence[Configuration]) -> None:
        self._scratch = scratch
        self._configurations = configurations

    def write(self, directory: Path) -> None:
        directory.mkdir()
        write_repository(directory, self._scratch, self._configurations)


def play_triton(
    command: Sequence[str], directory: Path, configurations: Sequence[Configuration]
) -> dict[str, Result]:
    scratch = directory / "scratch"
    scratch.mkdir()
    triton = Triton(command, _Repository(scratch, configurations), directory)
    triton.start()
    try:
        place = Place(triton.http_port, triton.grpc_port, scratch, SETTLE_S)
        eventually(
            lambda: status_of(f"{place.url}/v2/health/ready") == 200, LIMIT_S, "Triton is ready"
        )
        return play_all(place, configurations)
    finally:
        triton.stop()


def _line(result: Result) -> str:
    """A result in a line of the table."""
    if "failed" in result:
        return str(result["failed"])
    models = [value for value in result.values() if isinstance(value, dict)]
    seen = "; ".join(" | ".join(model["seen"]) for model in models if model["seen"])
    sizes = " ".join(f"{s}x{n}" for model in models for s, n in model["batches"].items())
    refused = f", {len(result['errors'])} refused" if result["errors"] else ""
    then = f", {result['answered_before']} answered before" if result["answered_before"] else ""
    return f"{sizes} ({seen}{refused}{then})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="keep what Triton does")
    parser.add_argument("--only", default="", help="configurations whose name holds this")
    parser.add_argument("command", nargs="+", help="what starts tritonserver")
    arguments = parser.parse_args()
    chosen = [each for each in CONFIGURATIONS if arguments.only in each.name]
    with tempfile.TemporaryDirectory() as folder:
        triton = play_triton(arguments.command, Path(folder), chosen)
    with tempfile.TemporaryDirectory() as folder:
        ours = play_ours(Path(folder), chosen)
    for name, result in triton.items():
        is_equal = result == ours[name]
        print(f"{name}: {'equal' if is_equal else 'DIFFERENT'}\n  Triton {_line(result)}")
        if not is_equal:
            print(f"  ours   {_line(ours[name])}")
            if _line(result) == _line(ours[name]):
                print(f"  Triton {result}\n  ours   {ours[name]}")
    equal = sum(result == ours[name] for name, result in triton.items())
    print(f"{equal} of {len(triton)} are equal")
    if arguments.record:
        keep(triton, ours)
    return 0 if equal == len(triton) else 1


if __name__ == "__main__":
    sys.exit(main())
