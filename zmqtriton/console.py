"""Triton's tables, as the server prints them when it has started.

Made of plain data and returned as text without a newline at the end. The caller gives the
terminal's width; None, as for a file or a pipe, wraps nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from zmqtriton.options import Options

#: Width of the signs around a cell, "| " and " |", without the bar that it shares with its
#: neighbour.
_PADDING = 2
_BAR = 1
#: Least width of a column; a narrower one could not be read.
_LEAST_WIDTH = 4


class ModelRow(NamedTuple):
    """One version of a model; version is "-" for a model without versions."""

    name: str
    version: str
    #: State of the version: READY, or another one and the reason: `UNAVAILABLE: ...`
    status: str


class BackendRow(NamedTuple):
    name: str
    path: str
    #: Settings as JSON, from `backend_config`.
    config: str


def table(header: Sequence[str], rows: Iterable[Sequence[str]], width: int | None = None) -> str:
    """Return a table no wider than `width`; the rest of a long cell is in the next line."""
    lines = [[_split(cell) for cell in row] for row in (header, *rows)]
    widths = [
        max(len(part) for row in lines for part in row[column]) for column in range(len(header))
    ]
    if width is not None:
        widths = _fit(widths, width)
    rule = "+" + "+".join("-" * (size + _PADDING) for size in widths) + "+"
    first, *rest = (_row(cells, widths) for cells in lines)
    return "\n".join([rule, *first, rule, *(line for row in rest for line in row), rule])


def _split(cell: str) -> list[str]:
    # a control character in a model's error text must not reach the operator's terminal
    return [re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", line) for line in cell.splitlines()] or [""]


def _row(cells: Sequence[Sequence[str]], widths: Sequence[int]) -> list[str]:
    wrapped = [_wrap(cell, size) for cell, size in zip(cells, widths, strict=True)]
    height = max(len(cell) for cell in wrapped)
    return [
        "|"
        + "|".join(
            f" {cell[line] if line < len(cell) else '':<{size}} "
            for cell, size in zip(wrapped, widths, strict=True)
        )
        + "|"
        for line in range(height)
    ]


def _wrap(lines: Sequence[str], size: int) -> list[str]:
    # Cut at the width and not between words: paths and JSON have none.
    return [
        line[start : start + size] for line in lines for start in range(0, max(len(line), 1), size)
    ]


def _fit(widths: Sequence[int], width: int) -> list[int]:
    """Give every column an equal share; wide columns get the space that narrow ones leave."""
    share = float((width - len(widths) * (_PADDING + _BAR) - _BAR) // len(widths))
    fitted = list(widths)
    by_width = sorted(range(len(widths)), key=widths.__getitem__)
    for done, column in enumerate(by_width, start=1):
        if widths[column] <= share:
            wider = len(widths) - done
            if wider:
                share += (share - widths[column]) / wider
        else:
            fitted[column] = max(int(share), _LEAST_WIDTH)
    return fitted


def model_table(models: Iterable[ModelRow], width: int | None = None) -> str:
    """Return the table of all models by name, each with its versions in ascending order."""
    rows = sorted(models, key=lambda row: (row.name, _number(row.version), row.version))
    return table(("Model", "Version", "Status"), rows, width)


def _number(version: str) -> int:
    return int(version) if version.isascii() and version.isdigit() else -1


def repository_agent_table(width: int | None = None) -> str:
    """Return the table of agents, which is empty: the only one is built in."""
    return table(("Repository Agent", "Path"), [], width)


def backend_table(backends: Iterable[BackendRow], width: int | None = None) -> str:
    return table(("Backend", "Path", "Config"), sorted(backends), width)


def backend_config(options: Options, backend: str) -> str:
    """Return a backend's settings as JSON: those for all backends, then its own."""
    return json.dumps({"cmdline": options.backend_command_line(backend)}, separators=(",", ":"))


def option_table(
    options: Options,
    *,
    version: str,
    extensions: Sequence[str],
    gpus: Sequence[int] = (),
    width: int | None = None,
) -> str:
    """Return the table of the server's options; `gpus` are those that it has found."""
    pools = dict(options.cuda_memory_pool_byte_size)
    default_pool = 64 << 20
    rows: list[tuple[str, object]] = [
        ("server_id", options.id),
        ("server_version", version),
        ("server_extensions", " ".join(extensions)),
        *(
            (f"model_repository_path[{index}]", path)
            for index, path in enumerate(options.model_repository)
        ),
        ("model_control_mode", f"MODE_{options.model_control_mode.upper()}"),
        *((f"startup_models_{index}", name) for index, name in enumerate(options.load_model)),
        ("strict_model_config", int(options.strict_model_config)),
        ("model_config_name", options.model_config_name),
        ("rate_limit", "OFF" if options.rate_limit == "off" else "EXEC_COUNT"),
        ("pinned_memory_pool_byte_size", options.pinned_memory_pool_byte_size),
        *((f"cuda_memory_pool_byte_size{{{gpu}}}", pools.get(gpu, default_pool)) for gpu in gpus),
        ("min_supported_compute_capability", options.min_supported_compute_capability),
        ("strict_readiness", int(options.strict_readiness)),
        ("exit_timeout", options.exit_timeout_secs),
        ("cache_enabled", int(bool(options.cache_config))),
    ]
    return table(("Option", "Value"), [(name, str(value)) for name, value in rows], width)


def keepalive_table(options: Options, width: int | None = None) -> str:
    rows: list[tuple[str, int]] = [
        ("keepalive_time_ms", options.grpc_keepalive_time),
        ("keepalive_timeout_ms", options.grpc_keepalive_timeout),
        ("keepalive_permit_without_calls", options.grpc_keepalive_permit_without_calls),
        ("http2_max_pings_without_data", options.grpc_http2_max_pings_without_data),
        (
            "http2_min_recv_ping_interval_without_data_ms",
            options.grpc_http2_min_recv_ping_interval_without_data,
        ),
        ("http2_max_ping_strikes", options.grpc_http2_max_ping_strikes),
    ]
    header = ("GRPC KeepAlive Option", "Value")
    return table(header, [(name, str(int(value))) for name, value in rows], width)
