"""The drawings that explain the server; `python -m tools.pictures` writes them to docs/guides.

They load no fonts, and have the colours of the reader's scheme, light or dark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path

from zmqtriton.options import Options
from zmqtriton_floor.arena import INLINE_BYTES

GUIDES = Path(__file__).resolve().parent.parent / "docs" / "guides"
WIDTH = 700
_DEFAULTS = Options()
#: Colours by selector: the property, and its value in each scheme.
_COLOURS = (
    (".paper", "fill", "#ffffff", "#1e2129"),
    ("text, .tip", "fill", "#1f2328", "#e4e6eb"),
    (".soft", "fill", "#57606a", "#aab1bf"),
    (".line", "stroke", "#57606a", "#aab1bf"),
    (".plain", "fill", "#f2f3f5", "#2c313d"),
    (".plain, .group", "stroke", "#8c959f", "#6e7687"),
    (".blue", "fill", "#d6e4f7", "#27446b"),
    (".blue", "stroke", "#3b6fb6", "#7aa7e6"),
    (".orange", "fill", "#f9e0d4", "#6b3c27"),
    (".orange", "stroke", "#c0562f", "#e08a66"),
    (".green", "fill", "#d9eed7", "#2b5430"),
    (".green", "stroke", "#4d8f4a", "#7cc078"),
)
_STYLE = """text { font: 14px system-ui, sans-serif }
.soft { font-size: 13px }
.code { font-family: ui-monospace, monospace; font-size: 13px }
.line, .group { fill: none }
.dashed, .group { stroke-dasharray: 4 3 }
"""
_TIP = (
    '<marker id="tip" viewBox="0 0 9 8" refX="8" refY="4" markerWidth="9" markerHeight="8" '
    'markerUnits="userSpaceOnUse" orient="auto-start-reverse">'
    '<path class="tip" d="M0 0L9 4L0 8z"/></marker>'
)


# ------------------------------------------------------------------------------ parts


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    place = f'x="{x}" y="{y}" text-anchor="{anchor}"'
    return f'<text class="{kind}" {place}>{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, *lines: str, kind: str = "plain") -> str:
    """Draw a box with these lines in its middle."""
    rectangle = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" class="{kind}"/>'
    first = y + height / 2 + 5 - 9 * (len(lines) - 1)
    words = [
        text(x + width / 2, first + 18 * number, line, anchor="middle")
        for number, line in enumerate(lines)
    ]
    return "\n".join([rectangle, *words])


def arrow(*points: tuple[float, float], kind: str = "", ends: str = "end") -> str:
    """Draw a line through these points, with a tip at its `end`, at `both` ends or at `none`."""
    path = "L".join(f"{x} {y}" for x, y in points)
    tips = {"none": "", "end": 'marker-end="url(#tip)"'}
    tips["both"] = f'marker-start="url(#tip)" {tips["end"]}'
    return f'<path class="line {kind}" d="M{path}" {tips[ends]}/>'


def bar(y: float, begin: float, end: float, words: str, kind: str, height: float = 28) -> str:
    """Draw a bar for a span of time."""
    return box(begin, y, end - begin, height, *[words] * bool(words), kind=kind)


def picture(title: str, height: int, parts: Iterable[str]) -> str:
    light, dark = (
        "\n".join(
            f"{selector} {{ {name}: {values[scheme]} }}" for selector, name, *values in _COLOURS
        )
        for scheme in (0, 1)
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>\n{_STYLE}{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}</style>",
            _TIP,
            f'<rect class="paper" width="{WIDTH}" height="{height}" rx="6"/>',
            *parts,
            "</svg>\n",
        ]
    )


# --------------------------------------------------------------------------- pictures


def _processes() -> str:
    parts = [
        box(
            178, 14, 510, 34, f"shared memory: tensors above {INLINE_BYTES >> 10} KiB", kind="green"
        ),
        box(178, 76, 140, 136, kind="group"),
        text(188, 94, "frontends", "soft"),
        box(388, 76, 128, 136, kind="blue"),
        text(400, 96, "broker"),
        box(580, 76, 108, 136, kind="group"),
        text(590, 94, "instances", "soft"),
        arrow((248, 50), (248, 74), kind="dashed", ends="both"),
        arrow((634, 50), (634, 74), kind="dashed", ends="both"),
    ]
    clients = [
        ("HTTP client", 102, _DEFAULTS.http_port, "HTTP frontend"),
        ("gRPC client", 160, _DEFAULTS.grpc_port, "gRPC frontend"),
        ("Prometheus", 232, _DEFAULTS.metrics_port, "metrics"),
    ]
    for client, y, port, process in clients:
        parts += [
            box(12, y, 112, 40, client),
            arrow((126, y + 20), (186, y + 20)),
            text(156, y + 14, f":{port}", "soft", "middle"),
            box(188, y, 120, 40, process, kind="blue"),
        ]
    for y, model, waiting in ((122, "resnet", 4), (174, "scale", 1)):
        parts.append(text(400, y, f"queue of {model}", "soft"))
        parts += [
            box(400 + 18 * place, y + 7, 14, 14, kind="orange" if place < waiting else "plain")
            for place in range(6)
        ]
    parts += [
        arrow((310, 122), (386, 122), ends="both"),
        text(352, 116, "requests", "soft", "middle"),
        arrow((310, 180), (386, 180), ends="both"),
        arrow((452, 214), (452, 252), (310, 252)),
        text(381, 246, "counts", "soft", "middle"),
    ]
    for y, model in ((102, "resnet"), (138, "resnet"), (174, "scale")):
        parts += [
            box(592, y, 84, 30, model, kind="blue"),
            arrow((518, y + 15), (590, y + 15), ends="both"),
        ]
    parts += [
        text(549, 111, "batch", "soft", "middle"),
        box(12, 296, 112, 48, "zmqtriton-ctl"),
        arrow((126, 320), (176, 320)),
        box(
            178,
            296,
            510,
            48,
            "supervisor: reads the model repository, starts all other",
            "processes of the server, and replaces those that die",
            kind="blue",
        ),
    ]
    return picture("The processes of a server", 358, parts)


#: Depth, name, whether a model cannot do without it, and caption.
_TREE = (
    (0, "models/", True, "the repository: --model-repository=models"),
    (1, "scale/", True, "a model; requests call it scale"),
    (2, "config.pbtxt", False, "inputs, outputs and settings"),
    (2, "1/", True, "a version, by its number"),
    (3, "model.py", True, "its code, with a class TritonPythonModel"),
    (2, "2/", False, "another version: by default, the highest serves"),
    (3, "model.py", True, "its code"),
    (3, "weights.npz", False, "a file that only this version reads"),
    (2, "labels.txt", False, "names of classes (label_filename of an output)"),
    (2, "requirements.txt", False, "packages for an environment of the model"),
    (2, "warmup/", False, "data of the samples in model_warmup"),
    (2, "initial_state/", False, "first states of sequences"),
    (1, "pipeline/", False, "an ensemble: a model without code"),
    (2, "config.pbtxt", True, "its steps"),
    (2, "1/", True, "a version, which needs no files"),
)


def _repository() -> str:
    step, indent = 27, 26
    parts: list[str] = []
    last_at: list[float] = []
    for number, (depth, name, is_needed, caption) in enumerate(_TREE):
        x, y = 24 + indent * depth, 32 + step * number
        if depth:
            above = last_at[depth] if depth < len(last_at) else last_at[depth - 1] + 6
            parts.append(arrow((x - 18, above), (x - 18, y - 4), (x - 4, y - 4), ends="none"))
        del last_at[depth:]
        last_at.append(y - 4)
        parts += [
            text(x, y, name, "code"),
            _dot(258, y - 5, is_needed),
            text(276, y, caption),
        ]
    y = 32 + step * len(_TREE) + 8
    parts += [
        _dot(258, y - 5, True),
        text(276, y, "needed", "soft"),
        _dot(358, y - 5, False),
        text(376, y, "optional", "soft"),
    ]
    return picture("A model repository", y + 16, parts)


def _dot(x: float, y: float, is_needed: bool) -> str:
    return f'<circle cx="{x}" cy="{y}" r="5" class="{"tip" if is_needed else "line"}"/>'


#: Times of requests, and by the delay: the begin and the number of requests of each batch.
ARRIVALS_MS = (0, 2, 4, 6, 30)
MAX_BATCH, BASE_MS, EACH_MS = 4, 8, 1
BATCHES = {0: ((0, 1), (9, 3), (30, 1)), 10: ((6, 4), (40, 1))}


def _batching() -> str:
    rule = f"A batch takes {BASE_MS} ms, and {EACH_MS} ms for each request; max_batch_size is"
    parts = [text(16, 24, f"{rule} {MAX_BATCH}.", "soft")]
    for top, (delay, batches) in zip((54, 196), BATCHES.items(), strict=True):
        busy = sum(BASE_MS + EACH_MS * size for _, size in batches)
        title = f"With a delay of {delay} ms" if delay else "Without a delay"
        parts.append(text(16, top, title))
        parts.append(text(WIDTH - 16, top, f"the instance is busy for {busy} ms", "soft", "end"))
        parts += _executions(top + 10, batches)
    parts.append(arrow((16, 330), (WIDTH - 10, 330)))
    for ms in range(0, 51, 10):
        parts.append(arrow((_x(ms), 326), (_x(ms), 334), ends="none"))
        parts.append(text(_x(ms), 349, f"{ms} ms", "soft", "middle" if ms else "start"))
    parts += [
        bar(366, 16, 40, "", "orange", 16),
        text(48, 379, "a request waits", "soft"),
        bar(366, 180, 204, "", "blue", 16),
        text(212, 379, "execute runs", "soft"),
        text(330, 379, "9 ms: from a request to its response", "soft"),
    ]
    return picture("Batches with and without a delay", 394, parts)


#: The lengths of texts in the order of arrival, and the batches that they form by each setting.
LENGTHS = (3, 2, 4, 3, 12, 2, 11, 3, 10, 4)
BUDGET, FITTED_ROWS = 36, (3, 8, 8)
FITTED = {
    "Rows: up to 3 texts": ((3, 2, 4), (3, 12, 2), (11, 3, 10), (4,)),
    "Cost: up to 36 padded tokens": ((3, 2, 4, 3), (12, 2, 11), (3, 10, 4)),
    "Cost and likeness": ((3, 2, 4, 3, 2, 3, 4), (12, 11, 10)),
}


def _fitting() -> str:
    rule = f"Ten texts of {', '.join(map(str, LENGTHS))} tokens; memory for {BUDGET} padded tokens."
    parts = [text(16, 24, rule, "soft")]
    top = 54
    for title, batches in FITTED.items():
        padded = sum(len(batch) * max(batch) for batch in batches)
        parts.append(text(16, top, title))
        words = f"{len(batches)} batches, {padded} tokens computed"
        parts.append(text(WIDTH - 16, top, words, "soft", "end"))
        left = 16
        for batch in batches:
            for row, length in enumerate(batch):
                y = top + 10 + 15 * row
                parts.append(bar(y, left, left + 14 * length, "", "blue", 13))
                if length < max(batch):
                    end = left + 14 * max(batch)
                    parts.append(bar(y, left + 14 * length, end, "", "orange", 13))
            left += 14 * max(batch) + 18
        top += 40 + 15 * max(map(len, batches))
    parts += [
        bar(top - 14, 16, 40, "", "blue", 16),
        text(48, top - 1, "tokens of a text", "soft"),
        bar(top - 14, 180, 204, "", "orange", 16),
        text(212, top - 1, "padding", "soft"),
    ]
    return picture("Batches by rows, by cost, and by cost and likeness", top + 14, parts)


def latencies_ms(batches: Sequence[tuple[int, int]]) -> list[int]:
    """Return the time from each request to the end of its batch."""
    ends = [begin + BASE_MS + EACH_MS * size for begin, size in batches for _ in range(size)]
    return [end - arrival for end, arrival in zip(ends, ARRIVALS_MS, strict=True)]


def _x(ms: float) -> float:
    return 20 + 12.5 * ms


def _executions(top: float, batches: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Draw waiting requests, a row for each, and the batches that they form."""
    step, row = 25, 0
    requests = zip(ARRIVALS_MS, latencies_ms(batches), strict=True)
    for begin, size in batches:
        row = row if row + size <= MAX_BATCH else 0
        end = begin + BASE_MS + EACH_MS * size
        for y in range(row, row + size):
            arrival, latency = next(requests)
            if begin > arrival:
                yield bar(top + step * y + 4, _x(arrival), _x(begin), "", "orange", 14)
            yield text(_x(end) + 8, top + step * y + 16, f"{latency} ms", "soft")
        words = f"batch of {size}" + " (full)" * (size == MAX_BATCH)
        yield bar(top + step * row, _x(begin), _x(end), words, "blue", step * size - 3)
        row += size


def _jobs() -> str:
    parts = [
        text(14, 148, "Prefer: respond-async", "code"),
        arrow((14, 158), (188, 158)),
        text(14, 178, "202: it is on disk", "soft"),
        box(190, 134, 100, 48, "queued", kind="orange"),
        arrow((292, 158), (398, 158)),
        text(345, 150, "model is free", "soft", "middle"),
        box(400, 134, 100, 48, "running", kind="blue"),
        arrow((502, 158), (586, 158)),
        text(543, 150, "response", "soft", "middle"),
        box(588, 134, 100, 48, "succeeded", kind="green"),
        # failures, and the way back
        arrow((450, 132), (450, 94), (586, 94)),
        text(458, 110, "error or crash", "soft"),
        arrow((250, 132), (250, 66), (586, 66)),
        text(258, 82, "waits longer than --jobs-keep-secs", "soft"),
        box(588, 54, 100, 48, "failed"),
        arrow((638, 52), (638, 30), (220, 30), (220, 132)),
        text(228, 22, "zmqtriton-ctl jobs retry", "code"),
        # another try
        arrow((430, 184), (430, 202), (260, 202), (260, 182)),
        text(345, 220, "not begun, or interrupted", "soft", "middle"),
        text(345, 237, "while JOBS_REPEAT is set", "soft", "middle"),
        # cancelling
        arrow((470, 184), (470, 228), (586, 228)),
        text(478, 222, "DELETE", "soft"),
        arrow((220, 184), (220, 254), (586, 254)),
        text(478, 248, "DELETE", "soft"),
        box(588, 216, 100, 48, "cancelled"),
        text(14, 292, "A job that has ended is removed after --jobs-keep-secs,", "soft"),
        text(14, 310, "by DELETE, or by zmqtriton-ctl jobs purge.", "soft"),
    ]
    return picture("The states of a job", 324, parts)


def _upgrade() -> str:
    begin, start, swap, end, rest = 128, 190, 410, 580, 688
    parts = [
        text(start, 24, "zmqtriton-ctl replace", "code"),
        text(swap, 24, "the new one has the ports"),
        text(rest, 42, "the old one ends", anchor="end"),
    ]
    for x, y in ((start, 32), (swap, 32), (end, 50)):
        parts.append(arrow((x, y), (x, 250), kind="dashed", ends="none"))
    lanes = [
        (
            "Old server",
            [(begin, swap, "serves", "blue"), (swap, end, "finishes requests", "orange")],
        ),
        (
            "New server",
            [(start, swap, "loads its models", "orange"), (swap, rest, "serves", "green")],
        ),
        (
            "Connections",
            [
                (begin, swap, "to the old server", "blue"),
                (swap, rest, "to the new server", "green"),
            ],
        ),
        (
            "Models",
            [
                (begin, start, "once", "plain"),
                (start, end, "twice in memory", "plain"),
                (end, rest, "once", "plain"),
            ],
        ),
    ]
    for number, (name, bars) in enumerate(lanes):
        y = 62 + 46 * number
        parts.append(text(14, y + 20, name))
        parts += [bar(y, *each) for each in bars]
    parts += [
        text(start, 268, "as long as a start; if it fails,", "soft"),
        text(start, 285, "the old server continues", "soft"),
        text(swap, 268, "until all have ended, at most", "soft"),
        text(swap, 285, f"--exit-timeout-secs ({_DEFAULTS.exit_timeout_secs} s)", "soft"),
    ]
    return picture("Two servers during an upgrade", 300, parts)


def pictures() -> dict[str, str]:
    """Return the drawings by the names of their files."""
    return {
        "processes.svg": _processes(),
        "repository.svg": _repository(),
        "batching.svg": _batching(),
        "fitting.svg": _fitting(),
        "job-states.svg": _jobs(),
        "upgrade.svg": _upgrade(),
    }


if __name__ == "__main__":
    for name, drawing in pictures().items():
        (GUIDES / name).write_text(drawing, "utf-8")
