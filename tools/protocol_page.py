"""Prints the protocol as Markdown for docs/protocol.md, from what is written in wire.py."""

from __future__ import annotations

import sys
from typing import Any

from zmqtriton_floor import schemas, wire
from zmqtriton_floor.reasons import Kind


def _document(cls: type[Any], number: int | None) -> list[str]:
    title = f"### {cls.__name__}" + ("" if number is None else f" ({number})")
    lines = [title, "", " ".join((cls.__doc__ or "").split()), ""]
    form = wire.SCHEMAS[cls.__name__]
    if form.fields:
        lines += ["| field | kind |", "|---|---|"]
        lines += [
            f"| `{name}` | {kind.replace(' | None', ', or none')} |"
            for name, kind in zip(form.fields, form.kinds, strict=True)
        ]
        lines.append("")
    return lines


def describe() -> str:
    """Return the whole protocol as Markdown."""
    lines = ["# Protocol", "", "Written by `python -m tools.protocol_page` from wire.py;"]
    lines += ["edit that file. That of clients over ZeroMQ is on [a page of its own](door.md).", ""]
    lines += [f"Version {wire.VERSION}.", "", "```text"]
    lines += [(wire.__doc__ or "").strip(), "```", ""]
    lines += ["## Kinds of fields", "", "| kind | bound |", "|---|---|"]
    lines += [f"| {kind} | {low} … {high} |" for kind, (low, high) in schemas.INTEGERS.items()]
    lines += [
        f"| {kind} | {low} … {high} long |" for kind, (_, low, high) in schemas.LENGTHS.items()
    ]
    lines.append("| Correlation | an integer or a string of up to 1024 characters |")
    lines += ["| Values | up to 64 integers, floats and strings by name |", ""]
    lines += ["## Rows", ""]
    for cls in wire.ROWS:
        lines += _document(cls, None)
    lines += ["## Kinds of reasons", "", "| kind | values |", "|---|---|"]
    lines += [f"| {kind} | {', '.join(kind.values)} |" for kind in Kind]
    lines += ["", "## Messages", ""]
    for number, cls in wire.KINDS.items():
        lines += _document(cls, number)
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(describe())
