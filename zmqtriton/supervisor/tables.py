"""The tables that are printed once all models were tried."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import IO

from zmqtriton import console
from zmqtriton.options import Options
from zmqtriton_floor import __version__

#: What is served, in Triton's order. The frontends are told, so that all say the same.
EXTENSIONS = (
    "classification",
    "sequence",
    "model_repository",
    "model_repository(unload_dependents)",
    "schedule_policy",
    "model_configuration",
    "system_shared_memory",
    "cuda_shared_memory",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "trace",
    "logging",
)


def all_tables(
    options: Options,
    models: Sequence[tuple[str, str, str]],
    python_path: str,
    gpus: Sequence[int],
    stream: IO[str],
) -> Iterator[str]:
    width = _width(stream)
    config = console.backend_config(options, "python")
    yield console.repository_agent_table(width=width)
    yield console.backend_table([console.BackendRow("python", python_path, config)], width)
    yield console.model_table([console.ModelRow(*row) for row in models], width)
    yield console.option_table(
        options, version=__version__, extensions=EXTENSIONS, gpus=gpus, width=width
    )


def _width(stream: IO[str]) -> int | None:
    """Of the terminal; None where there is none."""
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return None


def print_plain(text: str) -> None:
    """For who started the server, whatever becomes of records."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
