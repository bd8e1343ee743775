"""Prometheus text 0.0.4, as the page of metrics has it, read into families. Does no I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

#: In the order of the text; a label with an empty value is none, as for Prometheus.
Labels = tuple[tuple[str, str], ...]

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_SUFFIXES = {
    "histogram": ("_bucket", "_sum", "_count"),
    "summary": ("", "_sum", "_count"),
}


class Sample(NamedTuple):
    #: Behind the name of the family: "", "_bucket", "_sum" or "_count".
    suffix: str
    labels: Labels
    value: float


@dataclass
class Family:
    name: str
    #: As the text says it; "unknown" if it does not.
    kind: str
    help: str
    samples: list[Sample] = field(default_factory=list)


def parse(text: str) -> list[Family]:
    """Return the families of a page. Raises ValueError for a malformed line."""
    families: list[Family] = []
    help_text = ""
    for line in text.split("\n"):
        if line.startswith("# TYPE "):
            name, _, kind = line[7:].partition(" ")
            families.append(Family(name, kind, help_text))
            help_text = ""
        elif line.startswith("# HELP "):
            help_text = _unescape(line[7:].partition(" ")[2])
        elif line and not line.startswith("#"):
            _add_sample(families, line)
    return families


def _add_sample(families: list[Family], line: str) -> None:
    match = _SAMPLE.fullmatch(line)
    if match is None:
        raise ValueError(f"no line of metrics: {line[:100]}")
    name, labels, value = match.groups()
    family = families[-1] if families else None
    suffix = name.removeprefix(family.name) if family is not None else ""
    if (
        family is None
        or not name.startswith(family.name)
        or suffix not in _SUFFIXES.get(family.kind, ("",))
    ):
        family, suffix = Family(name, "unknown", ""), ""
        families.append(family)
    family.samples.append(Sample(suffix, tuple(_labels(labels or "")), float(value)))


def _labels(text: str) -> Iterator[tuple[str, str]]:
    for key, value in _LABEL.findall(text):
        if value:
            yield key, _unescape(value)


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda escape: "\n" if escape[1] == "n" else escape[1], text)
