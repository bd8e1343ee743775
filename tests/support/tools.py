"""Options of the tools in tests/bench and tests/faults, and servers of their own."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.server import Copy, Server


def parse_options(about: str | None = None, **table: tuple[Any, str]) -> argparse.Namespace:
    """Parse the command line: for each option its default, which has its type, and its help.

    The default False is of a flag, and a list of an option with any number of words.
    """
    parser = argparse.ArgumentParser(description=about)
    for name, (default, words) in table.items():
        how: dict[str, Any] = {"type": type(default)}
        if isinstance(default, list):
            how = {"nargs": "*"}
        elif default is False:
            how = {"action": "store_true"}
        parser.add_argument(f"--{name}", default=default, help=words, **how)
    return parser.parse_args()


@contextmanager
def temporary_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@contextmanager
def serving(
    models: Sequence[str | Path | Copy] = (),
    prepare: Callable[[Server], object] = lambda _: None,
    **how: Any,
) -> Iterator[Server]:
    """Run a server in a directory of its own, with these models and what prepares it."""
    with temporary_folder() as folder:
        server = Server(folder / "s", models, **how)
        prepare(server)
        with server:
            yield server
