"""The models' own metrics as Prometheus text 0.0.4, from the broker's families and series.

A `Series` is one version of a model on the page: its labels, and the broker's counters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from zmqtriton.sdk.wire import is_cached

_KINDS = ("counter", "gauge", "histogram")
_HEAD = "# HELP "
_BEGIN = re.compile(f"^(?={_HEAD})", re.MULTILINE)


def render(families: list[dict[str, Any]]) -> str:
    """Return the text; a family without series is left out."""
    lines: list[str] = []
    for each in families:
        name, kind = each["name"], _KINDS[each["kind"]]
        text = each["description"].replace("\\", "\\\\").replace("\n", "\\n")
        lines += head(name, text, kind) if each["series"] else []
        for series in each["series"]:
            if "counts" in series:
                lines += histogram(name, series)
            else:
                lines.append(f"{name}{_labels(series['labels'])} {number(series['value'])}")
    return text_of(lines)


def text_of(lines: Iterable[str]) -> str:
    """Return the text of lines, each with its end."""
    return "".join(f"{line}\n" for line in lines)


def merge(page: str) -> str:
    """Return the page with the lines of each family together, after one head.

    The server's counters for some models have the same names as an engine inside another model.
    """
    families: dict[str, str] = {}
    for text in _BEGIN.split(page):
        name = text.split(" ", 3)[2] if text.startswith(_HEAD) else ""
        families[name] = families[name] + text.split("\n", 2)[2] if name in families else text
    return "".join(families.values())


def head(name: str, text: str, kind: str) -> list[str]:
    """Return the first lines of a family."""
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def family(
    name: str,
    text: str,
    kind: str,
    samples: Iterable[tuple[Mapping[str, str], float]],
    *,
    is_optional: bool = False,
) -> Iterator[str]:
    """Yield the lines of a family, with labels and value of each sample.

    An optional family without samples has no lines.
    """
    rows = [*samples]
    if rows or not is_optional:
        yield from head(name, text, kind)
    yield from (f"{name}{labels_text(**labels)} {number(value)}" for labels, value in rows)


class Family(NamedTuple):
    """A family: one row of a table of metrics."""

    name: str
    kind: str
    help: str
    #: Reads the value of a sample.
    value: Callable[..., float]
    #: Left out if the operator has turned latency counters off.
    is_latency: bool = False

    def lines(self, samples: Iterable[tuple[Mapping[str, str], float]]) -> Iterator[str]:
        """Return the lines; none without a sample."""
        return family(self.name, self.help, self.kind, samples, is_optional=True)


def histogram(name: str, series: dict[str, Any]) -> Iterator[str]:
    """Return a histogram's lines; each of `counts` is for one bucket alone, `value` is the sum."""
    labels, counts = series["labels"], list(accumulate(series["counts"]))
    yield f"{name}_count{_labels(labels)} {counts[-1]}"
    yield f"{name}_sum{_labels(labels)} {number(series['value'])}"
    for bound, count in zip([*series["buckets"], math.inf], counts, strict=True):
        yield f"{name}_bucket{_labels({**labels, 'le': number(bound)})} {count}"


def _labels(labels: dict[str, str]) -> str:
    pairs = ",".join(f'{key}="{escape(value)}"' for key, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def number(value: float) -> str:
    """Return a number in Prometheus' form; integers without a point, as in Triton."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def escape(value: str) -> str:
    """Escape the value of a label."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Series:
    def __init__(self, stat: dict[str, Any], config: Mapping[str, Any]) -> None:
        self.stat = stat
        #: Figures that the protocol of statistics has no field for.
        self.own: dict[str, Any] = stat.get("zmqtriton", {})
        self.labels = model_labels(stat["name"], stat["version"], config)
        self.is_cached = is_cached(dict(config))


def model_labels(name: str, version: str, config: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels of a version, including its tags, in Triton's order."""
    tags = {f"_{key}": str(value) for key, value in (config.get("metric_tags") or {}).items()}
    return dict(sorted({**tags, "model": name, "version": version}.items()))


def labels_text(**labels: str) -> str:
    """Return the labels in Triton's order; "" without any."""
    return _labels(dict(sorted(labels.items())))


#: The name of a sample, and its labels if there are some.
_SAMPLE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\})?', re.M)
#: The name of a label; its value is skipped, whatever characters are in it.
_NAME = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="(?:[^"\\]|\\.)*"')


def add_labels(page: str, labels: Sequence[tuple[str, str]]) -> str:
    """Return the page with these labels added in front of each sample's own: `le` stays last."""
    if not labels:
        return page
    pairs = [(name, f'{name}="{escape(value)}"') for name, value in labels]

    def with_labels(match: re.Match[str]) -> str:
        own = (match[2] or "{}")[1:-1]
        names = _NAME.findall(own)
        missing = [text for name, text in pairs if name not in names]
        return f"{match[1]}{{{','.join([*missing, own] if own else missing)}}}"

    return _SAMPLE.sub(with_labels, page)
