"""Functions by chance, with values for them: each returns its arguments as they came."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import inspect
import json
from typing import Any, NamedTuple

import hypothesis
import numpy as np
import pydantic
from hypothesis import strategies as st

from zmqtriton_extras.functions.backend.documents import Documents, kind_of
from zmqtriton_extras.functions.backend.media import Audio, File, Image, Media

_INTS = st.integers(-(2**63), 2**63 - 1)
_FLOATS = st.floats()
_TEXTS = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=8),
    st.sampled_from(["null", "NaN", "https://localhost/x", "data:,x"]),
)
_BYTES = st.binary(max_size=8)
_SCALARS = {"int": _INTS, "float": _FLOATS, "bool": st.booleans(), "str": _TEXTS, "bytes": _BYTES}
#: Values that these hints do not allow, as JSON has them; but bytes are texts in it.
_WRONG = {
    "int": [2**63, 1.5, "1", True, [1]],
    "float": ["1", True, {}, [1.5]],
    "bool": [0, "true", [True]],
    "str": [1, ["a"], {}, False],
    "bytes": ["?", 1, ["YQ=="]],
}
_DATATYPES = {
    "INT8": st.integers(-128, 127),
    "UINT64": st.integers(0, 2**64 - 1),
    "INT32": st.integers(-(2**31), 2**31 - 1),
    "FP32": st.floats(width=32),
    "FP16": st.floats(width=16),
    "FP64": _FLOATS,
    "BOOL": st.booleans(),
    "BYTES": _TEXTS.map(str.encode),
}
_MEDIA = {"Audio": Audio, "File": File, "Image": Image}
#: What stands above all functions.
HEAD = """
import dataclasses
import datetime
import decimal
import enum
import uuid
from typing import (
    Annotated, Any, AsyncIterator, Dict, FrozenSet, Iterator, List, Literal, Mapping, NamedTuple,
    NewType, Optional, Sequence, Set, Tuple, TypedDict, Union
)
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field
from zmqtriton import Array, Audio, File, Image, model

class Pair(TypedDict):
    left: float
    right: Optional[str]

@dataclasses.dataclass
class Point:
    x: int
    pair: Pair
    tags: List[str] = dataclasses.field(default_factory=list)

class Color(enum.Enum):
    red = "red"
    one = 1

class Move(NamedTuple):
    x: int
    y: str

class Item(BaseModel):
    name: str = Field(max_length=8)
    count: Optional[int]

UserId = NewType("UserId", int)
"""


NAMESPACE: dict[str, Any] = {"__name__": "generated"}
#: Without the names of zmqtriton, which no hint within others has.
_HEAD = HEAD.replace("from zmqtriton import", "#")
exec(compile(_HEAD, "generated", "exec", dont_inherit=True), NAMESPACE)


class Hint(NamedTuple):
    """A hint as it is written, and how its values come about."""

    text: str
    values: st.SearchStrategy[Any]
    #: Documents of JSON that it does not allow.
    wrong: list[Any]
    #: The hint of an array that has such values as its rows, if there is one.
    rows: str = ""
    #: Values that are written in Python as they are shown.
    is_plain: bool = False
    #: True if the values are JSON, of which the function gets what pydantic makes.
    is_nested: bool = False


def _grids(elements: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, 3).flatmap(
        lambda width: st.lists(st.lists(elements, min_size=width, max_size=width), max_size=3)
    )


@st.composite
def _arrays(draw: st.DrawFn, is_entry: bool) -> Hint:
    name = draw(st.sampled_from(sorted(_DATATYPES)))
    dims = draw(st.lists(st.sampled_from([-1, 1, 2]), min_size=not is_entry, max_size=3))
    dtype = dtype_of(name)

    @st.composite
    def values(draw: st.DrawFn) -> Any:
        shape = [draw(st.integers(0, 3)) if dim < 0 else dim for dim in dims]
        size = int(np.prod(shape))
        flat = draw(st.lists(_DATATYPES[name], min_size=size, max_size=size))
        array = np.empty(size, dtype)
        array[:] = flat
        return array.reshape(shape) if dims else array[0]

    wrong = [{}, [[[[[1]]]]], [{}], *([1] if dims else [[1]])]
    plain = f"Array['{name}'{''.join(f', {dim}' for dim in dims)}]"
    if dims == [-1] and name != "BYTES":
        plain = draw(st.sampled_from([plain, f"NDArray[np.{np.dtype(dtype).name}]"]))
    rows = f"Array['{name}'{''.join(f', {dim}' for dim in (-1, *dims))}]"
    return Hint(plain if dims else "", values(), wrong, rows)


def dtype_of(datatype: str) -> Any:
    """The type of arrays of a datatype."""
    name = datatype.removeprefix("TYPE_").replace("FP", "float").lower()
    return np.dtype("object" if name in ("string", "bytes") else name)


_PAIRS = st.fixed_dictionaries({"left": _FLOATS, "right": st.none() | _TEXTS})
_POINTS = st.fixed_dictionaries({"x": _INTS, "pair": _PAIRS, "tags": st.lists(_TEXTS, max_size=2)})
#: Hints of JSON, their values as documents, and documents that they do not allow.
_DOCUMENTS: dict[str, tuple[st.SearchStrategy[Any], list[Any]]] = {
    "Dict[str, List[Dict[str, int]]]": (
        st.dictionaries(
            _TEXTS, st.lists(st.dictionaries(_TEXTS, _INTS, max_size=2), max_size=2), max_size=2
        ),
        [1, [], {"a": {}}, {"a": [{"b": "c"}]}, {"a": [{"b": 1.5}]}],
    ),
    "Dict[str, Any]": (
        st.dictionaries(_TEXTS, _INTS | _FLOATS | _TEXTS | st.none() | st.lists(_FLOATS)),
        ["a", [1]],
    ),
    "Pair": (_PAIRS, [{}, {"left": 1.0}, {"left": "a", "right": None}]),
    "Point": (_POINTS, [{}, {"x": 1}, {"x": 1, "pair": {"left": 1, "right": None}, "y": 1}]),
}


#: Hints within others: their values as JSON, and JSON that they do not allow.
_LEAVES: dict[str, tuple[st.SearchStrategy[Any], list[Any]]] = {
    "int": (st.integers(), ["1", 1.5, True, None]),
    "float": (st.floats(allow_nan=False, allow_infinity=False), ["1", False]),
    "bool": (st.booleans(), [0, "true"]),
    "str": (_TEXTS, [1, None]),
    "None": (st.none(), [0, "a"]),
    "Any": (_INTS | _TEXTS | st.lists(_TEXTS, max_size=2), []),
    "UserId": (st.integers(), ["a"]),
    "Annotated[int, Field(ge=0, description='a number')]": (st.integers(0), [-1, "a"]),
    "Literal['a', 1, None]": (st.sampled_from(["a", 1, None]), ["b", 2]),
    "Color": (st.sampled_from(["red", 1]), ["green", None]),
    "Union[int, str]": (st.integers() | _TEXTS, [1.5, None, {}]),
    "Move": (st.tuples(_INTS, _TEXTS).map(list), [[1], [1, 2], "a"]),
    "Item": (
        st.fixed_dictionaries({"name": st.just("a"), "count": st.none() | _INTS}),
        [{}, {"name": "a" * 9, "count": None}, {"name": "a", "count": "b"}],
    ),
    "Set[int]": (st.lists(_INTS, max_size=1), [1, ["a"], None]),
    "FrozenSet[str]": (st.lists(_TEXTS, max_size=1), [["a", 1]]),
    "Tuple[int, str]": (st.tuples(_INTS, _TEXTS).map(list), [[1], ["a", 1]]),
    "datetime.datetime": (
        st.datetimes().map(lambda moment: moment.isoformat()),
        ["soon", [], None],
    ),
    "datetime.date": (st.dates().map(lambda day: day.isoformat()), ["soon", {}]),
    "uuid.UUID": (st.uuids().map(str), ["a", 1]),
    "decimal.Decimal": (st.decimals(allow_nan=False, allow_infinity=False).map(str), ["a", []]),
}


@st.composite
def _nested(draw: st.DrawFn, levels: int = 3) -> Hint:
    """Draw a hint within others."""
    forms = ["leaf", "list", "dict", "numbers", "maybe", "tuple", "sequence"]
    form = draw(st.sampled_from(forms)) if levels else "leaf"
    if form == "leaf":
        name = draw(st.sampled_from(sorted(_LEAVES)))
        return Hint(name, *_LEAVES[name], is_nested=True)
    inner: Hint = draw(_nested(levels - 1))
    lists = st.lists(inner.values, max_size=2)
    elements = [1, *[[each] for each in inner.wrong]]
    others = [each for each in inner.wrong if each is not None]
    texts = st.dictionaries(_TEXTS, inner.values, max_size=2)
    numbers = st.dictionaries(st.integers().map(str), inner.values, max_size=2)
    rows: dict[str, tuple[str, st.SearchStrategy[Any], list[Any]]] = {
        "list": (f"List[{inner.text}]", lists, elements),
        "sequence": (f"Sequence[{inner.text}]", lists, elements),
        "tuple": (f"Tuple[{inner.text}, ...]", lists, elements),
        "dict": (f"Mapping[str, {inner.text}]", texts, [1, *[{"a": n} for n in inner.wrong]]),
        "numbers": (f"Dict[int, {inner.text}]", numbers, [[], *[{"1": n} for n in inner.wrong]]),
        "maybe": (f"Optional[{inner.text}]", st.none() | inner.values, others),
    }
    return Hint(*rows[form], is_nested=True)


def _is_document(hint: Hint) -> bool:
    """Whether a hint that stands alone is one of JSON, with documents that it does not allow."""
    bare = kind_of(eval(hint.text, NAMESPACE))
    return (
        type(bare) is Documents
        and bool({*map(type, hint.wrong)} - {type(None)})
        and not hint.text.startswith("Optional[")
    )


@st.composite
def hints(draw: st.DrawFn, is_entry: bool, is_single: bool) -> Hint:
    """Draw a hint; in a batch lists and arrays would have entries, and are no single values."""
    others = [] if is_single else ["list", "grid", "array"]
    kind = draw(st.sampled_from(["scalar", "choice", "json", "nested", "media", *others]))
    if kind == "nested":
        levels = 0 if is_single else draw(st.integers(0, 3))
        return draw(_nested(levels).filter(_is_document))
    name = draw(st.sampled_from(sorted(_SCALARS)))
    if kind == "scalar":
        return Hint(name, _SCALARS[name], _WRONG[name], is_plain=True)
    if kind == "list":
        values = st.lists(_SCALARS[name], max_size=4)
        return Hint(f"List[{name}]", values, [1, {}, _WRONG[name][:1]], is_plain=True)
    if kind == "grid":
        wrong = [[1], [_WRONG[name][:1]]]
        return Hint(f"List[List[{name}]]", _grids(_SCALARS[name]), wrong, is_plain=True)
    if kind == "array":
        return draw(_arrays(is_entry))
    if kind == "media":
        media = draw(st.sampled_from(sorted(_MEDIA)))
        return Hint(media, _BYTES.map(_MEDIA[media]), _WRONG["bytes"])
    if kind == "json":
        text = draw(st.sampled_from(sorted(_DOCUMENTS)))
        return Hint(text, *_DOCUMENTS[text])
    several = st.lists(_INTS, min_size=1, max_size=3, unique=True)
    choices = draw(st.one_of(several, st.lists(_TEXTS, min_size=1, max_size=3, unique=True)))
    text = f"Literal[{', '.join(map(repr, choices))}]"
    return Hint(text, st.sampled_from(choices), [[choices[0]], {}, "other"], is_plain=True)


class Generated(NamedTuple):
    #: Its source with the name of the function left out.
    text: str
    has_batches: bool
    is_stream: bool
    #: The arguments of each request, as JSON's documents or arrays; in a batch those of an entry.
    requests: list[dict[str, Any]]
    #: Arguments of JSON that are refused.
    wrong: dict[str, Any]
    #: Arguments with one entry a request: as lists, and as rows of an array.
    entries: set[str]
    rows: set[str]
    points: set[str]
    #: Hints of arguments that are JSON, of which the function gets what pydantic makes.
    nested: dict[str, str]
    #: True if it returns a value in place of one output a field.
    has_one_output: bool

    def document(self, values: dict[str, Any]) -> dict[str, Any]:
        """The document that JSON has for the values of a request, or of an answer."""
        # texts in an array are bytes, and so is one of its elements
        rows = self.rows | ({"output"} if self.rows else set())
        return {
            n: v.decode() if n in rows and isinstance(v, bytes) else as_json(v)
            for n, v in values.items()
        }

    def source(self, name: str = "caption") -> str:
        """The source without HEAD."""
        return self.text.replace("NAME", name)


class _Row(NamedTuple):
    name: str
    hint: Hint
    #: As it is in the function's head.
    text: str
    is_entry: bool
    is_rows: bool
    is_optional: bool
    default: str

    def head(self) -> str:
        if not self.is_optional:
            return f"{self.name}: {self.text}"
        text = f"Optional[{self.text}]" if self.default == "None" else self.text
        return f"{self.name}: {text} = {self.default}"


@st.composite
def _parameters(draw: st.DrawFn, name: str, is_entry: bool, has_batches: bool) -> _Row:
    hint = draw(hints(is_entry, has_batches and not is_entry))
    is_rows = is_entry and bool(hint.rows) and (not hint.text or draw(st.booleans()))
    text = hint.rows if is_rows else f"List[{hint.text}]" if is_entry else hint.text
    is_optional = not is_entry and draw(st.booleans())
    shown = repr(draw(hint.values)) if is_optional and hint.is_plain else "None"
    # neither has a literal
    default = "None" if "nan" in shown or "inf" in shown or draw(st.booleans()) else shown
    return _Row(name, hint, text, is_entry, is_rows, is_optional, default)


#: Forms of a function, with what makes an answer of the value of `return`.
_FORMS = {
    "def": ("", "return {}"),
    "async def": ("async ", "return {}"),
    "class": ("class", "return {}"),
    "generator": ("", "yield {0}\n    yield {0}"),
    "async generator": ("async ", "yield {0}\n    yield {0}"),
}
_STREAMS = {"generator": "Iterator", "async generator": "AsyncIterator"}


def _code(form: str, batch: int, heads: str, returned: str, value: str) -> str:
    prefix, body = _FORMS[form]
    returned = f"{_STREAMS[form]}[{returned}]" if form in _STREAMS else returned
    if prefix == "class":
        lines = f"""
@model(name="NAME", batch={batch})
class NAME:
    def __call__(self, {heads}) -> {returned}:
        {body.format(value)}
"""
    else:
        lines = f"""
@model(batch={batch})
{prefix}def NAME({heads}) -> {returned}:
    {body.format(value)}
"""
    return lines


@st.composite
def functions(draw: st.DrawFn) -> Generated:
    """Draw a function and some requests."""
    has_batches, count = draw(st.booleans()), draw(st.integers(1, 4))
    forms = sorted(set(_FORMS) - set(_STREAMS) if has_batches else _FORMS)
    form = draw(st.sampled_from(forms))
    rows = [
        draw(_parameters(f"p{n}", has_batches and (n == 0 or draw(st.booleans())), has_batches))
        for n in range(count)
    ]
    fields, values = [], []
    # the answer of a batch has no value that may be None
    for each in (each for each in rows if not (has_batches and each.is_optional)):
        is_repeated = has_batches and not each.is_entry
        text = f"List[{each.text}]" if is_repeated else each.text
        is_nullable = each.is_optional and each.default == "None"
        fields.append((each.name, f"Optional[{text}]" if is_nullable else text))
        values.append(f"[{each.name}] * len(p0)" if is_repeated else each.name)
    source = ""
    if len(fields) == 1 and draw(st.booleans()):
        returned, value = fields[0][1], values[0]
    else:
        base, returned = draw(st.sampled_from(["NamedTuple", "TypedDict"])), "NAME_answer"
        lines = "".join(f"    {name}: {text}\n" for name, text in fields)
        source = f"\nclass {returned}({base}):\n{lines}"
        named = [f"{name}={value}" for (name, _), value in zip(fields, values, strict=True)]
        value = f"{returned}({', '.join(named)})"
    heads = ", ".join(["*", *(each.head() for each in rows)])
    source += _code(form, 4 if has_batches else 0, heads, returned, value)
    request = st.fixed_dictionaries(
        {each.name: each.hint.values for each in rows if not each.is_optional},
        optional={each.name: each.hint.values for each in rows if each.is_optional},
    )
    bad = draw(st.sampled_from(rows))
    return Generated(
        source,
        has_batches,
        form in _STREAMS,
        draw(st.lists(request, min_size=1, max_size=3)),
        # null is an argument that is left out
        {bad.name: draw(st.sampled_from([n for n in bad.hint.wrong if n is not None]))},
        {each.name for each in rows if each.is_entry},
        {each.name for each in rows if each.is_rows},
        {each.name for each in rows if each.hint.text == "Point"},
        {each.name: each.hint.text for each in rows if each.hint.is_nested},
        # of a TypedDict each field is an output
        not source.startswith("\nclass NAME_answer") and returned != "Pair",
    )


def generate(count: int) -> list[Generated]:
    """Functions by chance, for what cannot ask one at a time."""
    found: list[Generated] = []

    @hypothesis.settings(max_examples=count, phases=[hypothesis.Phase.generate])
    @hypothesis.given(generated=functions())
    def collect(generated: Generated) -> None:
        found.append(generated)

    collect()
    return found


def as_json(value: Any) -> Any:
    """The document that JSON has for a value, by itself."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Media):
        return f"data:{value.content_type};base64,{as_json(value.data)}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        return np.vectorize(bytes.decode, otypes=[object])(value).tolist()
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple | set | frozenset):
        return [as_json(each) for each in value]
    if isinstance(value, dict):
        return {name: as_json(each) for name, each in value.items()}
    if type(value) in (bool, int, float, str, type(None)):
        return value
    return pydantic.TypeAdapter(Any).dump_python(value, mode="json")


def exactly(document: Any) -> str:
    """A text that is the same for the same bits: -0.0 is not 0; NaN and infinities are null."""
    finite = json.loads(json.dumps(document), parse_constant=lambda word: None)
    return json.dumps(finite, sort_keys=True)


class Plain:
    """The functions of a source, called as plain ones."""

    def __init__(self, source: str) -> None:
        self._namespace: dict[str, Any] = {"__name__": "generated"}
        # without the annotations from the future that this module has
        exec(compile(source, "generated", "exec", dont_inherit=True), self._namespace)

    def answers(self, name: str, generated: Generated, request: dict[str, Any]) -> list[str]:
        """The answers of a plain call, as JSON has them: two of a stream."""
        values = {
            **request,
            **{n: self._namespace["Point"](**request[n]) for n in generated.points & {*request}},
        }
        for n in generated.nested.keys() & request.keys():
            hint = eval(generated.nested[n], NAMESPACE)
            values[n] = pydantic.TypeAdapter(hint).validate_python(request[n])
        for n in generated.entries:
            values[n] = np.stack([values[n]]) if n in generated.rows else [values[n]]
        for n in generated.rows:  # numpy would have an array of its own for texts
            if type(request[n]) is bytes:
                values[n] = np.array([request[n]], object)
        function = self._namespace[name]
        answers = function()(**values) if isinstance(function, type) else function(**values)
        return [self._document(generated, each) for each in asyncio.run(_all_of(answers))]

    def _document(self, generated: Generated, answer: Any) -> str:
        if generated.has_one_output:
            answer = {"output": answer}
        answer = answer._asdict() if hasattr(answer, "_asdict") else answer
        documents = {n: as_json(v) for n, v in answer.items()}
        return exactly({n: v[0] if generated.has_batches else v for n, v in documents.items()})


async def _all_of(answers: Any) -> list[Any]:
    """The answer of a function, or all of a stream."""
    if inspect.isasyncgen(answers):
        return [each async for each in answers]
    if inspect.isgenerator(answers):
        return [*answers]
    return [await answers if inspect.iscoroutine(answers) else answers]


def tensor_of(
    value: Any, kind: dict[str, Any], *, has_batches: bool, is_document: bool = False
) -> Any:
    """The array of a value, made by what the configuration says alone."""
    dtype = dtype_of(kind["data_type"])
    dims = [int(dim) for dim in kind["dims"]]
    is_document = is_document or isinstance(value, dict)
    value = json.dumps(value) if is_document else getattr(value, "data", value)
    if dtype.hasobject and isinstance(value, bytes):
        array = np.array([value], object)
    else:
        array = np.array(value, dtype)
    # empty lists say nothing of the dimensions below
    shape = [*array.shape, *[0] * len(dims)][: len(dims)] if array.shape else [1]
    return array.reshape([1] * has_batches + shape)
