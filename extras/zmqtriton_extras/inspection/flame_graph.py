"""Draws a profile as a flame graph: one SVG that needs nothing else, in light and in dark.

Each row has the calls made by the frames of the row above; the width is time. A click on a frame
shows it over the whole width, and a click on the lowest row shows everything again.
"""

from __future__ import annotations

import re
from html import escape

from zmqtriton_extras.inspection.formats import name_of
from zmqtriton_extras.inspection.profile import AWAITS, DOING, PYTHON, C, Frame, Profile, Stack

_WIDTH, _ROW, _TOP, _LETTER = 1200, 18, 46, 6.6
#: The narrowest frame that is drawn, and the numbers of rows and of frames.
_LEAST_WIDTH, _MOST_ROWS, _MOST_DRAWN = 0.3, 120, 10_000
#: Letters that XML cannot have.
_UNFIT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_STYLE = """
svg { background: #ffffff; font: 11px ui-monospace, Menlo, Consolas, monospace; }
text { fill: #1b1b1f; pointer-events: none; }
.title { font-size: 14px; font-weight: bold; }
rect { stroke: #ffffff; stroke-width: 0.5; cursor: pointer; }
rect:hover { stroke: #1b1b1f; }
.root { fill: #d5d8de; } .thread { fill: #c3c8d2; }
.own { fill: #ffb454; } .other { fill: #9cc4ec; } .waiting { fill: #e6e8ec; }
.own.waiting { fill: #ffe3bd; }
@media (prefers-color-scheme: dark) {
  svg { background: #17181c; } text { fill: #f2f2f4; }
  rect { stroke: #17181c; } rect:hover { stroke: #f2f2f4; }
  .root { fill: #3b3f48; } .thread { fill: #484d58; }
  .own { fill: #a65e00; } .other { fill: #2b5d8f; } .waiting { fill: #2a2d34; }
  .own.waiting { fill: #5a3c14; }
}
"""

_SCRIPT = """
const WIDTH = %d, LETTER = %s;
const all = [...document.querySelectorAll("g.frame")].map(g => ({
  g, rect: g.querySelector("rect"), text: g.querySelector("text"), name: g.dataset.name,
  x: +g.dataset.x, w: +g.dataset.w, row: +g.dataset.row }));
function show(from) {
  for (const one of all) {
    const isAbove = one.row < from.row && one.x <= from.x && one.x + one.w >= from.x + from.w;
    const isWithin = one.row >= from.row && one.x >= from.x && one.x + one.w <= from.x + from.w;
    one.g.style.display = isAbove || isWithin ? "" : "none";
    const x = isAbove ? 0 : (one.x - from.x) / from.w * WIDTH;
    const w = isAbove ? WIDTH : one.w / from.w * WIDTH;
    one.rect.setAttribute("x", x); one.rect.setAttribute("width", w);
    one.text.setAttribute("x", x + 3);
    const room = Math.floor((w - 6) / LETTER);
    one.text.textContent = room < 3 ? "" :
      one.name.length <= room ? one.name : one.name.slice(0, room - 1) + "\\u2026";
  }
}
for (const one of all) one.g.addEventListener("click", () => show(one));
"""


class _Node:
    """A frame that the same frames have called, and the time below it."""

    def __init__(self, kind: str, of: Frame | str) -> None:
        self.kind, self._of = kind, of
        self.ns = 0
        #: Nanoseconds by what was done.
        self.doing = [0] * len(DOING)
        self.below: dict[object, _Node] = {}

    @property
    def name(self) -> str:
        of = self._of
        return of if isinstance(of, str) else f"{of.function} ({of.place})"

    @property
    def about(self) -> str:
        of = self._of
        return of if isinstance(of, str) else f"{of.function} {of.file}"

    def add(self, stack: Stack) -> None:
        self.ns += stack.ns
        self.doing[stack.doing] += stack.ns

    @property
    def computes(self) -> bool:
        return 2 * (self.doing[PYTHON] + self.doing[C]) >= self.ns


def draw(profile: Profile) -> bytes:
    """Return the SVG, without the time of threads that wait for requests or other work."""
    root = _tree(profile)
    rows: list[str] = []
    depth = _draw(root, root, 0.0, 0, rows) + 1 if root.ns else 0
    height = _TOP + depth * _ROW + 10
    title = f"{profile.model}, {profile.seconds:.1f} s, {profile.samples} samples"
    legend = "orange: lines of the model, blue: others, pale: waiting"
    script = _SCRIPT % (_WIDTH, _LETTER)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="100%" '
        'preserveAspectRatio="xMinYMin">'
        f"<style>{_STYLE}</style>"
        f'<text class="title" x="4" y="18">{_text(title)}</text>'
        f'<text x="4" y="36">{legend}</text>'
        f"{''.join(rows)}<script><![CDATA[{script}]]></script></svg>\n"
    ).encode()


def _tree(profile: Profile) -> _Node:
    root = _Node("root", profile.model)
    for stack in profile.counted:
        root.add(stack)
        name = name_of(profile, stack)
        node = root.below.setdefault(name, _Node("thread", name))
        node.add(stack)
        for frame in stack.frames[:_MOST_ROWS]:
            kind = "own" if frame.is_own else "other"
            node = node.below.get(frame) or node.below.setdefault(frame, _Node(kind, frame))
            node.add(stack)
    return root


def _draw(node: _Node, root: _Node, x: float, row: int, rows: list[str]) -> int:
    """Draw a node and the nodes below it; return the number of the deepest row."""
    width = node.ns / root.ns * _WIDTH
    if width < _LEAST_WIDTH or len(rows) >= _MOST_DRAWN:
        return row
    y = _TOP + row * _ROW
    parts = ", ".join(
        f"{name}{' in parallel' if kind == AWAITS else ''} {ns / 1e9:.2f} s"
        for kind, (name, ns) in enumerate(zip(DOING, node.doing, strict=True))
        if ns
    )
    about = f"{node.about}: {node.ns / root.ns:.1%}, {parts}"
    kind = node.kind if node.computes or node.kind in ("root", "thread") else f"{node.kind} waiting"
    room = int((width - 6) / _LETTER)
    name = node.name
    label = name if len(name) <= room else f"{name[: room - 1]}…" if room > 2 else ""
    rows.append(
        f'<g class="frame" data-x="{x:.2f}" data-w="{width:.2f}" data-row="{row}" '
        f'data-name="{_text(name)}"><title>{_text(about)}</title>'
        f'<rect class="{kind}" x="{x:.2f}" y="{y}" width="{width:.2f}" height="{_ROW - 1}" rx="1"/>'
        f'<text x="{x + 3:.2f}" y="{y + 13}">{_text(label)}</text></g>'
    )
    deepest = row
    for below in sorted(node.below.values(), key=lambda one: -one.ns):
        deepest = max(deepest, _draw(below, root, x, row + 1, rows))
        x += below.ns / root.ns * _WIDTH
    return deepest


def _text(text: str) -> str:
    """Return a text for XML: a model chooses its names."""
    return escape(_UNFIT.sub("�", text))
