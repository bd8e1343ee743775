"""Measures which memory of this process grows: runs in an instance, next to its model.

Imports only Python's own library, 3.8 and newer: a stub loads this file by its path, for the time
of a measurement. Python's allocations are traced (tracemalloc), and containers are counted before
and after (gc); libraries of arrays are examined only if the model has loaded them.
"""

from __future__ import annotations

import gc
import os
import sys
import time
import tracemalloc
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from types import FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple

#: Frames of an allocation that are kept: the model's own may lie behind those of libraries.
_FRAMES = 12
#: Share of the time whose allocations are no growth yet: buffers, caches that fill.
_SETTLING = 0.25
_MOST_ROWS = 20
#: Containers that are named: each takes a look at all objects.
_MOST_NAMED, _MOST_TRIED = 5, 40
#: Containers that have grown by less are not named.
_LEAST_ITEMS = 2
#: Steps from a container to what has a name.
_MOST_STEPS = 4
#: Number of objects whose contents are read at once; other threads run in between.
_TOGETHER = 10_000
#: Files whose allocations are the measurement's.
_OURS = (__file__, tracemalloc.__file__)
_PAGE = os.sysconf("SC_PAGE_SIZE")
#: The type of a function with a cache.
_CACHE = type(lru_cache(None)(len))
_CONTAINERS = (list, dict, set, deque, _CACHE)


def measure(instance: Any, seconds: float) -> dict[str, Any]:
    """Return the growth of this process in these seconds."""
    if tracemalloc.is_tracing():
        raise RuntimeError(
            "the model traces its allocations itself: remove its tracemalloc.start()"
        )
    # the collector shows nothing of what was there before the first request, which is frozen
    is_frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    try:
        time.sleep(seconds * _SETTLING / 2)
        earlier = _Look()
        first, last = _traced(seconds * _SETTLING / 2, seconds * (1 - _SETTLING))
        # what a look makes would be traced, object by object
        later = _Look()
        holders = _holders(earlier, later)
    finally:
        if is_frozen:
            gc.freeze()
    directories = tuple(f"{one.rstrip('/')}/" for one in instance.directories)
    lines = _lines(first, last, directories)
    return {
        "seconds": seconds,
        "directories": list(instance.directories),
        "resident": [earlier.resident, later.resident],
        "lines": lines[:_MOST_ROWS],
        "traced": sum(line["bytes"] for line in lines),
        "holders": holders,
        "types": _growth(earlier.types, later.types),
        "arrays": [earlier.arrays, later.arrays],
        "tensors": _growth(earlier.tensors, later.tensors),
        "cuda": _growth(earlier.cuda, later.cuda),
    }


def _traced(settling_s: float, seconds: float) -> tuple[tracemalloc.Snapshot, tracemalloc.Snapshot]:
    """Return two snapshots of allocations since now: after settling, and after the measurement."""
    tracemalloc.start(_FRAMES)
    try:
        time.sleep(settling_s)
        first = _snapshot()
        time.sleep(seconds)
        return first, _snapshot()
    finally:
        tracemalloc.stop()


def _snapshot() -> tracemalloc.Snapshot:
    gc.collect()  # cycles that nobody holds are no leak
    return tracemalloc.take_snapshot()


# ------------------------------------------------------------------------ lines


def _lines(
    first: tracemalloc.Snapshot, last: tracemalloc.Snapshot, directories: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Return the lines whose allocations have grown; of a stack, preferably the model's line."""
    grown: dict[tuple[str, int, bool], list[int]] = {}
    for difference in last.compare_to(first, "traceback"):
        file, line, is_own = _own_line(difference.traceback, directories)
        if file in _OURS:
            continue
        entry = grown.setdefault((file, line, is_own), [0, 0])
        entry[0] += difference.size_diff
        entry[1] += difference.count_diff
    rows = [
        {"file": file, "line": line, "is_own": is_own, "bytes": size, "count": count}
        for (file, line, is_own), (size, count) in grown.items()
        if size > 0
    ]
    return sorted(rows, key=lambda row: -row["bytes"])


def _own_line(trace: Sequence[Any], directories: tuple[str, ...]) -> tuple[str, int, bool]:
    frames = list(reversed(trace))  # the innermost first
    for frame in frames:
        if frame.filename.startswith(directories) and "/site-packages/" not in frame.filename:
            return frame.filename, frame.lineno, True
    return frames[0].filename, frames[0].lineno, False


# ---------------------------------------------------------------------- holders


def _objects() -> list[Any]:
    """Return the objects of this process that contain others.

    Until Python 3.13 the collector does not track dicts whose values contain no others, such as
    bytes and arrays. Such dicts are found through their holders.
    """
    objects = gc.get_objects()
    untracked: dict[int, Any] = {}
    for at in range(0, len(objects), _TOGETHER):
        for one in gc.get_referents(*objects[at : at + _TOGETHER]):
            if type(one) is dict and not gc.is_tracked(one):
                untracked[id(one)] = one
    objects += untracked.values()
    return objects


class _Look:
    """The objects of this process at one moment."""

    def __init__(self) -> None:
        self.resident = _resident()
        #: The number of items, by the container's number.
        self.sizes: dict[int, int] = {}
        #: Bytes of numpy's arrays in containers, and of tensors by their device.
        self.arrays = 0
        self.tensors: Counter[str] = Counter()
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        array = getattr(numpy, "ndarray", None)
        tensor = getattr(torch, "Tensor", None)
        objects = _objects()
        # by its number, since not all types are hashable; and of each once, since a model with its
        # libraries has half a million objects
        counts = Counter(id(type(one)) for one in objects)
        kinds = {id(type(one)): type(one) for one in objects}
        self.types: Counter[str] = Counter()
        for number, count in counts.items():
            self.types[kinds[number].__name__] += count
        bases = {number: _base(kind) for number, kind in kinds.items()}
        tensors = {
            n for n, kind in kinds.items() if tensor is not None and issubclass(kind, tensor)
        }
        seen = set()
        for one in objects:
            kind = id(type(one))
            # the model may give an object another type
            base = bases.get(kind)
            if base is not None:
                self.sizes[id(one)] = _count(one, base)
                if array is not None:
                    for item in _values(one, base):
                        if type(item) is array and item.base is None and id(item) not in seen:
                            seen.add(id(item))
                            self.arrays += item.nbytes
            elif kind in tensors:
                self._add_tensor(one)
        self.cuda = _cuda(torch)

    def _add_tensor(self, one: Any) -> None:
        try:
            self.tensors[str(one.device)] += one.element_size() * one.nelement()
        except Exception:  # noqa: BLE001 - one that has no memory, such as a sparse or a fake one
            self.tensors["unknown"] += 0


def _is(one: Any, kind: Any) -> bool:
    """Return whether an object is of a type.

    isinstance() would call the object itself, and a lazy module would load.
    """
    return issubclass(type(one), kind)


def _base(kind: type) -> Any:
    """Return the container type that a type derives from; None for another type.

    Its methods are called instead of the type's own, because some of these load the content.
    """
    return next((base for base in _CONTAINERS if issubclass(kind, base)), None)


def _count(one: Any, base: Any) -> int:
    return int(one.cache_info().currsize) if base is _CACHE else int(base.__len__(one))


def _values(one: Any, base: Any) -> Iterable[Any]:
    try:
        return list(base.values(one)) if base is dict else list(base.__iter__(one))
    except Exception:  # noqa: BLE001 - the model changes it, or it has no items to iterate over
        return ()


def _cuda(torch: Any) -> Counter[str]:
    """Return the bytes of CUDA's allocator, by device, if the model uses it."""
    sizes: Counter[str] = Counter()
    cuda = getattr(torch, "cuda", None)
    if cuda is not None and cuda.is_initialized():
        for number in range(cuda.device_count()):
            sizes[f"cuda:{number} allocated"] = cuda.memory_allocated(number)
            sizes[f"cuda:{number} reserved"] = cuda.memory_reserved(number)
    return sizes


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * _PAGE


class _Holder(NamedTuple):
    name: str
    kind: str
    before: int
    after: int
    file: str
    line: int


def _holders(earlier: _Look, later: _Look) -> list[dict[str, Any]]:
    """Return the containers that have grown most, each with its name."""
    grown = {
        number: (earlier.sizes[number], size)
        for number, size in later.sizes.items()
        if number in earlier.sizes and size - earlier.sizes[number] >= _LEAST_ITEMS
    }
    first = sorted(grown, key=lambda number: grown[number][0] - grown[number][1])
    ours = {id(earlier.sizes), id(later.sizes), id(grown), id(first)}
    ours |= {id(earlier.types), id(later.types)}
    objects = {id(one): one for one in _objects() if id(one) in grown}
    holders: list[dict[str, Any]] = []
    for number in first[:_MOST_TRIED]:
        one = objects.pop(number, None)
        if one is None or number in ours or len(holders) == _MOST_NAMED:
            continue
        name, file, line = _name(one, ours | {id(objects)})
        holder = _Holder(name, type(one).__name__, *grown[number], file, line)._asdict()
        if not _is_ours(holder):
            holders.append(holder)
    return holders


def _is_ours(holder: dict[str, Any]) -> bool:
    """Return True for a container of the server or of this measurement, which is no leak."""
    file = holder["file"]
    is_traced = file in _OURS or "tracemalloc" in holder["name"]
    return is_traced or "/zmqtriton_stub/" in file or "/zmqtriton_floor/" in file


class _Step(NamedTuple):
    """The name of an object by its holder."""

    name: str
    holder: Any
    file: str = ""
    line: int = 0
    #: False if the holder's own name must precede this one.
    is_end: bool = True


def _name(one: Any, ours: Any) -> tuple[str, str, int]:
    """Return the name of a container by its holders, and the place of the outermost."""
    path = ""
    for _ in range(_MOST_STEPS):
        step = _step(one, ours)
        if step is None:
            break
        path = f"{step.name}{path}"
        if step.is_end:
            return path, step.file, step.line
        one = step.holder
    return path or "an object without a name", "", 0


def _step(one: Any, ours: Any) -> _Step | None:
    """Return the best name of an object: a name in a module or an object, rather than an index."""
    if type(one) is _CACHE:
        return _of_code(f"the cache of {one.__name__}()", one.__wrapped__, one)
    first = None
    for holder in gc.get_referrers(one):  # in no comprehension, whose variables would be referrers
        if id(holder) in ours or _is(holder, FrameType):
            continue
        for naming in _NAMINGS:
            for step in naming(holder, one):
                if step.is_end:
                    return step
                first = first or step
    return first


def _in_dict(holder: Any, one: Any) -> Iterator[_Step]:
    """Yield a name in a module, an attribute of an object, or a key."""
    if type(holder) is not dict:
        return
    key = _key_of(holder, one)
    owner = _owner(holder)
    if key is None:
        return
    if _is(owner, ModuleType):
        file = getattr(owner, "__file__", "") or ""
        yield _Step(str(key), owner, file, _line_of(file, str(key)))
    elif owner is not None:
        kind = owner if _is(owner, type) else type(owner)
        yield _Step(f"{kind.__name__}.{key}", owner, *_code_of(kind))
    else:
        yield _Step(f"[{_short(key)}]", holder, is_end=False)


def _in_function(holder: Any, one: Any) -> Iterator[_Step]:
    """Yield a default, or a variable that a function has from the function around it."""
    if type(holder) is tuple:
        for function in _functions(holder, "__defaults__"):
            yield _of_code(f"a default of {function.__name__}()", function, function)
    elif type(holder).__name__ == "cell":
        for cells in gc.get_referrers(holder):
            for function in _functions(cells, "__closure__") if type(cells) is tuple else ():
                number = next(n for n, cell in enumerate(cells) if cell is holder)
                name = function.__code__.co_freevars[number]
                yield _of_code(f"{name} of {function.__name__}()", function, function)


def _functions(part: Any, attribute: str) -> list[FunctionType]:
    return [
        one
        for one in gc.get_referrers(part)
        if _is(one, FunctionType) and getattr(one, attribute) is part
    ]


def _in_object(holder: Any, one: Any) -> Iterator[_Step]:
    """Yield attributes of objects without a dict: with slots, or on Python 3.11 and newer."""
    kind = type(holder)
    if kind is dict or _is(holder, (type, ModuleType, FunctionType)):
        return
    slots = [key for each in kind.__mro__ for key in _slots(each)]
    pairs = [(key, getattr(holder, key, None)) for key in slots] + _attributes(holder)
    for key, value in pairs:
        if value is one:
            yield _Step(f"{kind.__name__}.{key}", holder, *_code_of(kind))


def _in_container(holder: Any, one: Any) -> Iterator[_Step]:
    if type(holder) is not dict and _base(type(holder)):
        yield _Step("[…]", holder, is_end=False)


_NAMINGS = (_in_dict, _in_function, _in_object, _in_container)


def _of_code(name: str, function: Any, holder: Any) -> _Step:
    code = function.__code__
    return _Step(name, holder, code.co_filename, code.co_firstlineno)


def _owner(document: dict[Any, Any]) -> Any:
    """Return the module or object that owns a dict of names; None for another dict."""
    for holder in gc.get_referrers(document):
        if _is(holder, type) or getattr(holder, "__dict__", None) is document:
            return holder
    return None


def _key_of(document: dict[Any, Any], one: Any) -> Any:
    for key, value in _pairs(document):
        if value is one:
            return key
    return None


def _pairs(document: dict[Any, Any]) -> list[tuple[Any, Any]]:
    try:
        return list(document.items())
    except RuntimeError:  # the model changes it
        return []


def _attributes(one: Any) -> list[tuple[str, Any]]:
    try:
        return list(vars(one).items())
    except (TypeError, RuntimeError):
        return []


def _slots(kind: type) -> list[str]:
    slots = getattr(kind, "__slots__", ())
    return [slots] if isinstance(slots, str) else [str(one) for one in slots]


def _short(key: Any) -> str:
    text = repr(key) if isinstance(key, (str, int, float, bytes)) else type(key).__name__
    return text if len(text) <= 40 else f"{text[:39]}…"


def _code_of(kind: type) -> tuple[str, int]:
    """Return the place of a class: its first function's."""
    for value in list(vars(kind).values()):
        if _is(value, FunctionType):
            return value.__code__.co_filename, value.__code__.co_firstlineno
    return "", 0


def _line_of(file: str, name: str) -> int:
    """Return the line where a module gives a value to a name; 0 if it is not found."""
    try:
        with open(file, encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                if line.startswith((f"{name} ", f"{name}=", f"{name}:")):
                    return number
    except OSError:
        return 0
    return 0


def _growth(before: Any, after: Any) -> list[list[Any]]:
    """Return the rows that have grown: name, before and after, largest growth first."""
    rows = [[name, before[name], after[name]] for name in after if after[name] > before[name]]
    return sorted(rows, key=lambda row: row[1] - row[2])[:_MOST_ROWS]
