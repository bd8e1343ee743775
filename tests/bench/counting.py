"""Counts functions, attributes that are read or written, and new objects, between two signals.

calls.py has each process of a server import it as its `sitecustomize`. It counts opcodes: an
object is what a display, a slice, an iterator, a text with fields, or the call of a class makes;
what a function of C makes is not seen.
"""

from __future__ import annotations

import ast
import builtins
import dis
import functools
import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

_LOOK_UP, _OBJECT = 1, 2
_KINDS = {
    **dict.fromkeys(("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR"), _LOOK_UP),
    **dict.fromkeys(
        """BUILD_TUPLE BUILD_LIST BUILD_MAP BUILD_SET BUILD_CONST_KEY_MAP BUILD_STRING BUILD_SLICE
        LIST_TO_TUPLE MAKE_FUNCTION GET_ITER RETURN_GENERATOR""".split(),
        _OBJECT,
    ),
}
_CALLS = ("CALL", "CALL_FUNCTION_EX")
#: Classes whose calls make nothing, and what makes objects in code without a source.
_NO_OBJECT, _MAKERS = (type, bool, int, super), ("new", "_tuple_new")

#: Calls, look-ups and objects by function.
_counts: dict[str, list[int]] = {}


@functools.cache
def _callees(path: str) -> dict[tuple[int | None, int | None], ast.expr]:
    """Return what the calls in a file call, by the ends of the calls."""
    tree = ast.parse(Path(path).read_text("utf-8") if Path(path).is_file() else "")
    return {
        (node.end_lineno, node.end_col_offset): node.func
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    }


def _value(node: ast.expr, frame: FrameType) -> Any:
    if isinstance(node, ast.Name):
        return {**vars(builtins), **frame.f_globals, **frame.f_locals}.get(node.id)
    if not isinstance(node, ast.Attribute):
        return None
    owner = _value(node.value, frame)
    is_computed = isinstance(getattr(type(owner), node.attr, None), property)
    return None if is_computed else getattr(owner, node.attr, None)


def _makes_object(callee: ast.expr, frame: FrameType) -> bool:
    value = _value(callee, frame)
    is_class = isinstance(value, type) and value not in _NO_OBJECT
    return is_class or getattr(value, "__name__", "") == "__new__"


@functools.cache
def _tracer(code: Any) -> Any:
    """Return the function that counts in the frames of a code."""
    callees, name, at = _callees(code.co_filename), "", -1
    ends = [place[1::2] for place in code.co_positions()]
    plan: dict[int, Any] = {}
    for step in dis.get_instructions(code):
        at = step.offset if at < 0 else at  # the trace names the first prefix of a long opcode
        if step.opname == "EXTENDED_ARG":
            continue
        if step.opname in _CALLS:
            plan[at] = callees.get(ends[step.offset // 2], name in _MAKERS and _OBJECT)
        elif step.opname in _KINDS:
            plan[at] = _KINDS[step.opname]
        elif step.opname == "LOAD_GLOBAL":
            name = step.argval
        at = -1
    full_name = f"{code.co_filename}:{getattr(code, 'co_qualname', code.co_name)}"

    def trace(frame: FrameType, event: str, _: object) -> Any:
        counts = _counts.setdefault(full_name, [0, 0, 0])
        if event == "call":
            counts[0] += 1
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        elif event == "opcode" and (kind := plan.get(frame.f_lasti)):
            if isinstance(kind, ast.expr):
                plan[frame.f_lasti] = kind = _OBJECT if _makes_object(kind, frame) else 0
            counts[kind] += bool(kind)
        return trace

    return trace


def _trace(frame: FrameType, event: str, argument: object) -> Any:
    return _tracer(frame.f_code)(frame, event, argument)


def begin(number: int, frame: FrameType | None) -> None:
    _counts.clear()
    while frame is not None:  # a loop that runs, too
        frame.f_trace, frame.f_trace_opcodes, frame.f_trace_lines = _trace, True, False
        frame = frame.f_back
    sys.settrace(_trace)


def end(number: int, frame: FrameType | None) -> None:
    sys.settrace(None)
    path = Path(os.environ["ZT_CALLS"], str(os.getpid()))
    own = {name: counts for name, counts in _counts.items() if not name.startswith(__file__)}
    path.with_suffix(".new").write_text(json.dumps(own))
    path.with_suffix(".new").rename(path)


if __name__ == "sitecustomize":
    signal.signal(signal.SIGRTMIN, begin)
    signal.signal(signal.SIGRTMIN + 1, end)
