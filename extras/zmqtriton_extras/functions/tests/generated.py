"""Functions by chance, with values for them: each returns its arguments as they came."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

_INTS = st.integers(-(2**63), 2**63 - 1)
_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
_TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
_BYTES = st.binary(max_size=8)
_SCALARS = {"int": _INTS, "float": _FLOATS, "bool": st.booleans(), "str": _TEXTS, "bytes": _BYTES}
_DATATYPES = {
    "INT8": st.integers(-128, 127),
    "UINT64": st.integers(0, 2**64 - 1),
    "INT32": st.integers(-(2**31), 2**31 - 1),
    "FP32": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "FP16": st.floats(width=16, allow_nan=False, allow_infinity=False),
    "FP64": _FLOATS,
    "BOOL": st.booleans(),
}


class Hint(NamedTuple):
    """A hint as it is written, and how its values come about."""

    text: str
    values: st.SearchStrategy[Any]
    #: The hint of an array that has such values as its rows, if there is one.
    rows: str = ""


def _grids(elements: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, 3).flatmap(
        lambda width: st.lists(st.lists(elements, min_size=width, max_size=width), max_size=3)
    )


@st.composite
def _arrays(draw: st.DrawFn) -> Hint:
    name = draw(st.sampled_from(sorted(_DATATYPES)))
    dims = draw(st.lists(st.sampled_from([-1, 1, 2]), min_size=1, max_size=3))
    dtype = name.replace("FP", "float").lower()

    @st.composite
    def values(draw: st.DrawFn) -> Any:
        shape = [draw(st.integers(0, 3)) if dim < 0 else dim for dim in dims]
        size = int(np.prod(shape))
        flat = draw(st.lists(_DATATYPES[name], min_size=size, max_size=size))
        return np.array(flat, dtype).reshape(shape)

    sizes = ", ".join(map(str, dims))
    return Hint(f"Array['{name}', {sizes}]", values(), f"Array['{name}', -1, {sizes}]")


@st.composite
def hints(draw: st.DrawFn, is_single: bool) -> Hint:
    """Draw a hint; in a batch lists and arrays would have entries, and are no single values."""
    others = [] if is_single else ["list", "grid", "array"]
    kind = draw(st.sampled_from(["scalar", "choice", "json", *others]))
    name = draw(st.sampled_from(sorted(_SCALARS)))
    if kind == "scalar":
        return Hint(name, _SCALARS[name])
    if kind == "list":
        return Hint(f"List[{name}]", st.lists(_SCALARS[name], max_size=4))
    if kind == "grid":
        return Hint(f"List[List[{name}]]", _grids(_SCALARS[name]))
    if kind == "array":
        return draw(_arrays())
    if kind == "json":
        values = st.lists(st.dictionaries(_TEXTS, _INTS, max_size=2), max_size=2)
        return Hint("Dict[str, List[Dict[str, int]]]", st.dictionaries(_TEXTS, values, max_size=2))
    several = st.lists(st.one_of(_INTS), min_size=1, max_size=3, unique=True)
    choices = draw(st.one_of(several, st.lists(_TEXTS, min_size=1, max_size=3, unique=True)))
    return Hint(f"Literal[{', '.join(map(repr, choices))}]", st.sampled_from(choices))


class Generated(NamedTuple):
    source: str
    has_batches: bool
    #: The arguments of each request; in a batch one entry for each of those that are lists.
    requests: list[dict[str, Any]]
    #: Arguments with one entry a request: as lists, and as rows of an array.
    entries: set[str]
    rows: set[str]


class _Row(NamedTuple):
    name: str
    hint: Hint
    #: As it is in the function's head.
    text: str
    is_entry: bool
    is_rows: bool
    is_optional: bool


@st.composite
def _parameters(draw: st.DrawFn, name: str, is_entry: bool, has_batches: bool) -> _Row:
    hint = draw(hints(has_batches and not is_entry))
    is_rows = is_entry and bool(hint.rows) and draw(st.booleans())
    text = hint.rows if is_rows else f"List[{hint.text}]" if is_entry else hint.text
    is_optional = not is_entry and draw(st.booleans())
    return _Row(name, hint, text, is_entry, is_rows, is_optional)


@st.composite
def functions(draw: st.DrawFn) -> Generated:
    """Draw a function and some requests."""
    has_batches, count = draw(st.booleans()), draw(st.integers(1, 4))
    rows = [
        draw(_parameters(f"p{n}", has_batches and (n == 0 or draw(st.booleans())), has_batches))
        for n in range(count)
    ]
    heads = [
        f"{each.name}: Optional[{each.text}] = None"
        if each.is_optional
        else f"{each.name}: {each.text}"
        for each in rows
    ]
    answers = [each for each in rows if not (has_batches and each.is_optional)]
    fields, values = [], []
    for each in answers:
        is_repeated = has_batches and not each.is_entry
        text = f"List[{each.text}]" if is_repeated else each.text
        fields.append(f"    {each.name}: " + (f"Optional[{text}]" if each.is_optional else text))
        values.append(f"[{each.name}] * len(p0)" if is_repeated else each.name)
    source = f"""
from typing import Dict, List, Literal, NamedTuple, Optional
from zmqtriton import Array, model

class Answer(NamedTuple):
{chr(10).join(fields)}

@model(batch={4 if has_batches else 0})
def caption({", ".join(["*", *heads])}) -> Answer:
    return Answer({", ".join(values)})
"""
    request = st.fixed_dictionaries(
        {each.name: each.hint.values for each in rows if not each.is_optional},
        optional={each.name: each.hint.values for each in rows if each.is_optional},
    )
    requests = draw(st.lists(request, min_size=1, max_size=3))
    entries = {each.name for each in rows if each.is_entry}
    of_rows = {each.name for each in rows if each.is_rows}
    return Generated(source, has_batches, requests, entries, of_rows)


def as_json(value: Any) -> Any:
    """The document that JSON has for a value, by itself."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        return [as_json(each) for each in value]
    return value.tolist() if isinstance(value, np.ndarray) else value
