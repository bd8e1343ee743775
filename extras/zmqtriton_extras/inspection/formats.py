"""Profiles as files of other programs: speedscope's JSON, and pprof's protocol buffers."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import Any, TypeVar

from zmqtriton_extras.inspection.profile import DOING, WAITS, Frame, Profile, Stack

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_K = TypeVar("_K", bound=Hashable)


class _Numbers(dict[_K, int]):
    """Numbers for keys, from `first` on, in the order of first use."""

    def __init__(self, first: int = 0) -> None:
        super().__init__()
        self._first = first

    def __missing__(self, key: _K) -> int:
        self[key] = number = len(self) + self._first
        return number


# ------------------------------------------------------------------ speedscope


def speedscope(profile: Profile) -> bytes:
    """Return a file with a profile for each thread, without its idle time."""
    frames = _Numbers[Frame]()
    threads: dict[str, list[tuple[list[int], int]]] = defaultdict(list)
    for stack in profile.counted:
        numbers = [frames[frame] for frame in stack.frames]
        threads[name_of(profile, stack)].append((numbers, stack.ns))
    profiles = [
        {
            "type": "sampled",
            "name": name,
            "unit": "nanoseconds",
            "startValue": 0,
            "endValue": sum(ns for _, ns in rows),
            "samples": [numbers for numbers, _ in rows],
            "weights": [ns for _, ns in rows],
        }
        for name, rows in threads.items()
    ]
    shared = [{"name": one.function, "file": one.file, "line": one.line} for one in frames]
    document = {
        "$schema": _SCHEMA,
        "name": profile.model,
        "exporter": "zmqtriton",
        "shared": {"frames": shared},
        "profiles": profiles,
    }
    return json.dumps(document).encode()


def name_of(profile: Profile, stack: Stack) -> str:
    """Return the name of a thread, with its instance if there are several."""
    return stack.thread if len(profile.instances) == 1 else f"{stack.instance}: {stack.thread}"


# ----------------------------------------------------------------------- pprof

# Fields of profile.proto.
_SAMPLE_TYPE, _SAMPLE, _LOCATION, _FUNCTION, _STRING = 1, 2, 4, 5, 6
_DURATION, _PERIOD_TYPE, _PERIOD = 10, 11, 12
_PERIOD_NS = 10_000_000


def pprof(profile: Profile) -> bytes:
    """Return a file for pprof: samples, processor time and time, by thread and activity."""
    texts = _Numbers[str]()
    assert not texts[""]
    functions = _Numbers[tuple[str, str, int]](1)
    locations = _Numbers[Frame](1)
    out = bytearray()
    for kind, unit in (("samples", "count"), ("cpu", "nanoseconds"), ("wall", "nanoseconds")):
        out += _block(_SAMPLE_TYPE, _value_type(texts[kind], texts[unit]))
    for stack in profile.counted:
        places = [locations[frame] for frame in reversed(stack.frames)]
        values = stack.samples, stack.ns if stack.doing < WAITS else 0, stack.ns
        sample = _block(1, b"".join(map(_varint, places)))
        sample += _block(2, b"".join(map(_varint, values)))
        for key, text in (
            ("instance", stack.instance),
            ("thread", stack.thread),
            ("doing", DOING[stack.doing]),
        ):
            sample += _block(3, _number(1, texts[key]) + _number(2, texts[text]))
        out += _block(_SAMPLE, sample)
    for frame, number in locations.items():
        function = functions[frame.function, frame.file, frame.begins]
        line = _number(1, function) + _number(2, frame.line)
        out += _block(_LOCATION, _number(1, number) + _block(4, line))
    for (name, file, begins), number in functions.items():
        fields = (number, texts[name], texts[name], texts[file], begins)
        out += _block(_FUNCTION, b"".join(_number(n, value) for n, value in enumerate(fields, 1)))
    rest = _number(_DURATION, int(profile.seconds * 1e9))
    rest += _block(_PERIOD_TYPE, _value_type(texts["wall"], texts["nanoseconds"]))
    rest += _number(_PERIOD, _PERIOD_NS)
    out += _strings(texts) + rest
    return gzip.compress(bytes(out), mtime=0)


def _value_type(kind: int, unit: int) -> bytes:
    return _number(1, kind) + _number(2, unit)


def _strings(texts: Iterable[Any]) -> bytes:
    return b"".join(_block(_STRING, text.encode("utf-8", "replace")) for text in texts)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(max(0, value))


def _block(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data
