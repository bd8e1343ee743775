"""Every hint and form of a function: each is served, or refused with the line to write."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path
from typing import Any

import orjson
import PIL.Image
import pydantic
import pytest

from tests.support.quick import every
from zmqtriton.options import parse
from zmqtriton_extras.functions.example_requests import example_for, requests
from zmqtriton_extras.functions.interface import interface_of
from zmqtriton_extras.functions.tests.test_functions import loaded
from zmqtriton_extras.functions.tests.test_interface import ask

HEAD = '''
import collections
import collections.abc
import dataclasses
import datetime
import decimal
import enum
import pathlib
import uuid
from pathlib import Path
from typing import (
    Annotated, Any, Callable, Dict, Iterable, Iterator, List, Literal, Mapping, NamedTuple, NewType,
    Optional, Sequence, TypedDict, Union
)
import numpy as np
import PIL.Image
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, Field
from zmqtriton import Array, Audio, File, Image, model

@dataclasses.dataclass
class Row:
    a: int
    b: str = "x"

class Item(BaseModel):
    name: str
    price: float = Field(gt=0)

class Point(NamedTuple):
    x: int
    y: float = 0.5

class Move(TypedDict):
    x: int

class Tree(TypedDict, total=False):
    size: int
    below: "List[Tree]"

class Color(enum.Enum):
    red = "red"
    blue = "blue"

class Size(str, enum.Enum):
    small = "s"

class Mixed(enum.Enum):
    one = 1
    two = "two"

class Other:
    """No JSON is known for it."""

UserId = NewType("UserId", int)
Frame = type("DataFrame", (), {"__module__": "pandas.core.frame"})
'''
_PICTURE = io.BytesIO()
PIL.Image.new("RGB", (2, 2)).save(_PICTURE, "PNG")
PICTURE = base64.b64encode(_PICTURE.getvalue()).decode()
URL = f"data:image/png;base64,{PICTURE}"
#: True for a pydantic that has numbers of this kind.
_KNOWS_COMPLEX = [*map(int, pydantic.VERSION.split(".")[:2])] >= [2, 9]
UUID = "00000000-0000-0000-0000-000000000001"
#: Hints, an argument in JSON, its repr in the function, and the answer if it is another one.
SERVED: list[tuple[str, Any, str, Any]] = [
    ("int", 3, "3", None),
    ("float", 3, "3.0", 3.0),
    ("bool", True, "True", None),
    ("str", "é", "'é'", None),
    ("bytes", "/w==", r"b'\xff'", None),
    ("list[int]", [1, 2], "[1, 2]", None),
    ("list[str]", [], "[]", None),
    ("list[bytes]", ["/w=="], r"[b'\xff']", None),
    ("list[list[float]]", [[1.0, 2.0], [3.0, 4.0]], "[[1.0, 2.0], [3.0, 4.0]]", None),
    ("list[list[float]]", [[1, 2], [3]], "[[1.0, 2.0], [3.0]]", [[1.0, 2.0], [3.0]]),
    ("list[list[list[str]]]", [[["a"], []], []], "[[['a'], []], []]", None),
    ("list[list[bytes]]", [["/w=="], []], r"[[b'\xff'], []]", None),
    ("np.ndarray", [1.0, 2.0], "array([1., 2.], dtype=float32)", None),
    ("NDArray[np.int8]", [1, 2], "array([1, 2], dtype=int8)", None),
    (
        "np.ndarray[tuple[int, int], np.dtype[np.int16]]",
        [[1], [2]],
        "array([[1],\n       [2]], dtype=int16)",
        None,
    ),
    ("Array['INT32', -1, 2]", [[1, 2]], "array([[1, 2]], dtype=int32)", None),
    ("np.float32", 1.5, "", None),
    ("np.int64", 7, "", None),
    ("np.bool_", True, "", None),
    ("Image", PICTURE, "", URL),
    ("File", PICTURE, "", f"data:application/octet-stream;base64,{PICTURE}"),
    ("list[Image]", [PICTURE, PICTURE], "", [URL, URL]),
    ("list[File]", [], "[]", None),
    ("PIL.Image.Image", PICTURE, "", URL),
    ("list[PIL.Image.Image]", [PICTURE], "", [URL]),
    ("Path", PICTURE, "", f"data:application/octet-stream;base64,{PICTURE}"),
    ("Literal['a', 'b']", "b", "'b'", None),
    ("Literal[True]", True, "True", None),
    ("Literal['a', 1, None]", 1, "1", None),
    ("list[Literal['a', 'b']]", ["b"], "['b']", None),
    ("dict", {"a": [1]}, "{'a': [1]}", None),
    ("Dict[str, int]", {"a": 2**70}, "{'a': 1180591620717411303424}", None),
    ("dict[int, str]", {"1": "a"}, "{1: 'a'}", None),
    ("dict[uuid.UUID, int]", {UUID: 1}, f"{{UUID('{UUID}'): 1}}", None),
    ("dict[str, list[Row]]", {"a": [{"a": 1, "b": "c"}]}, "{'a': [Row(a=1, b='c')]}", None),
    ("list[dict]", [{"a": 1}], "[{'a': 1}]", None),
    ("list[dict[str, str]]", [{"a": "b"}], "[{'a': 'b'}]", None),
    ("list[Row]", [{"a": 1}], "[Row(a=1, b='x')]", [{"a": 1, "b": "x"}]),
    (
        "list[Item]",
        [{"name": "a", "price": 1}],
        "[Item(name='a', price=1.0)]",
        [{"name": "a", "price": 1.0}],
    ),
    ("list[Move]", [{"x": 1}], "[{'x': 1}]", None),
    ("Tree", {"size": 1, "below": [{}]}, "{'size': 1, 'below': [{}]}", None),
    ("Row", {"a": 1, "b": "c"}, "Row(a=1, b='c')", None),
    ("Item", {"name": "a", "price": 1.5}, "Item(name='a', price=1.5)", None),
    ("Move", {"x": 1}, "{'x': 1}", None),
    ("Point", [1, 2.0], "Point(x=1, y=2.0)", None),
    ("list", [1, "a"], "[1, 'a']", None),
    ("list[Any]", [1, None], "[1, None]", None),
    ("list[list]", [[1], []], "[[1], []]", None),
    ("Any", {"a": None}, "{'a': None}", None),
    ("object", "a", "'a'", None),
    ("tuple", [1, "a"], "(1, 'a')", None),
    ("tuple[int, str]", [1, "a"], "(1, 'a')", None),
    ("tuple[int, ...]", [1, 2], "(1, 2)", None),
    ("list[tuple[int, str]]", [[1, "a"]], "[(1, 'a')]", None),
    ("tuple[Row, Color]", [{"a": 1, "b": "c"}, "red"], "", None),
    ("set", [1], "{1}", None),
    ("set[int]", [1, 1], "{1}", [1]),
    ("frozenset[str]", ["a"], "frozenset({'a'})", None),
    ("Sequence", [1], "[1]", None),
    ("Sequence[int]", [1], "[1]", None),
    ("collections.abc.Sequence[str]", ["a"], "['a']", None),
    ("Iterable[int]", [1, 2], "[1, 2]", None),
    ("Mapping", {"a": 1}, "{'a': 1}", None),
    ("Mapping[str, int]", {"a": 1}, "{'a': 1}", None),
    ("collections.deque[int]", [1], "deque([1])", None),
    ("Color", "red", "<Color.red: 'red'>", None),
    ("Size", "s", "<Size.small: 's'>", None),
    ("Mixed", 1, "<Mixed.one: 1>", None),
    ("list[Color]", ["red"], "[<Color.red: 'red'>]", None),
    ("datetime.datetime", "2020-01-02T03:04:05Z", "", None),
    ("datetime.date", "2020-01-02", "datetime.date(2020, 1, 2)", None),
    ("datetime.time", "03:04:05", "datetime.time(3, 4, 5)", None),
    ("datetime.timedelta", "PT1S", "datetime.timedelta(seconds=1)", None),
    ("uuid.UUID", UUID, f"UUID('{UUID}')", None),
    ("decimal.Decimal", "1.50", "Decimal('1.50')", None),
    *[("complex", "1+2j", "(1+2j)", None)][:_KNOWS_COMPLEX],
    ("UserId", 3, "3", None),
    ("list[UserId]", [3], "[3]", None),
    ("int | str", "a", "'a'", None),
    ("Union[int, str]", 1, "1", None),
    ("int | str | None", None, "None", None),
    ("Optional[int]", None, "None", None),
    ("Optional[list[dict]]", [{}], "[{}]", None),
    ("Annotated[int, Field(ge=0, le=10)]", 3, "3", None),
    ("Annotated[int | None, Field(ge=0)]", None, "None", None),
    ("Annotated[str, Field(max_length=3, pattern='^a')]", "ab", "'ab'", None),
    ("list[Annotated[int, Field(ge=0)]]", [1], "[1]", None),
    ("Annotated[list[int], Field(max_length=2)]", [1], "[1]", None),
    ("Annotated[int, AfterValidator(lambda n: 2 * n)]", 2, "4", 4),
    ("Annotated[Image, Field(description='a cat')]", PICTURE, "", URL),
    ("None", None, "None", None),
]


@pytest.mark.parametrize(("hint", "value", "shown", "answer"), every(8, SERVED))
def test_a_hint_is_served(tmp_path: Path, hint: str, value: Any, shown: str, answer: Any) -> None:
    source = f"""{HEAD}
class Answer(NamedTuple):
    shown: str
    back: {hint}

@model
def caption(x: {hint}) -> Answer:
    return Answer(repr(x), x)
"""
    with loaded(tmp_path, source) as model:
        document = ask(model, {"x": value})

    assert (value if answer is None else answer) == document["back"]
    assert shown in ("", document["shown"])


#: Further hints with a value in the request that `run` prints.
PRINTED = [
    "Annotated[float, Field(gt=1)]",
    "Annotated[float, Field(lt=0)]",
    "Annotated[float, Field(gt=0, lt=0.5)]",
    "Annotated[int, Field(le=-3)]",
    "Annotated[int, Field(multiple_of=7)]",
    "Annotated[str, Field(min_length=8)]",
    "Annotated[list[int], Field(min_length=2)]",
    "list[Annotated[datetime.datetime, Field(description='a day')]]",
]


def _has_form(hint: str) -> bool:
    """Whether the texts of a hint have a form that the schema does not say, or by a pattern."""
    return hint == "complex" or "pattern" in hint


@pytest.mark.parametrize(
    "hint",
    every(8, [*dict.fromkeys(hint for hint, *_ in SERVED if not _has_form(hint)), *PRINTED]),
)
def test_the_request_that_run_prints_is_taken(tmp_path: Path, hint: str) -> None:
    source = f"{HEAD}\n@model\ndef caption(x: {hint}) -> str: return repr(x)\n"
    with loaded(tmp_path, source) as model:
        [(path, text), _] = requests("caption", model.config, parse(["--model-repository=."]))
        assert ask(model, text.encode())["output"]

    assert "/caption" == path


#: Heads of functions, and a text of their refusal.
REFUSED: list[tuple[str, str]] = [
    ("(x) -> str", "parameter 'x' needs a hint, such as x: str"),
    ("(x: int)", "the return value needs a hint, such as -> str, or -> None"),
    ("(x: Unknown) -> str", "name 'Unknown' is not defined"),
    ("(*x: int) -> str", r"parameter 'x': .*; write x: list\[int\] in place of \*x"),
    ("(**x: int) -> str", r"parameter 'x': .*; write x: dict\[str, int\] in place of \*\*x"),
    ("(x: int, /) -> str", "parameter 'x': .*; write x: int without a '/' behind it"),
    ("(x: Other) -> str", "parameter 'x': Other: pydantic .*; write a dataclass, or a model of"),
    ("(x: list[Other]) -> str", r"parameter 'x': list\[.*Other\]: pydantic .*; write a dataclass"),
    ("(x: int) -> Other", "output 'output': Other: pydantic .*; write a dataclass"),
    ("(x: type) -> str", "parameter 'x': type: pydantic"),
    ("(x: Callable) -> str", "parameter 'x': Callable: pydantic"),
    ("(x: list[np.ndarray]) -> str", r"list\[.*ndarray\]: .*; write Array\[\"FP32\", -1, -1\]"),
    ("(x: dict[str, np.ndarray]) -> str", r"; write Array\[\"FP32\", -1, -1\] for a tensor, or"),
    ("(x: dict[str, Image]) -> str", r"; a picture, .*, or in a list: image: list\[Image\]"),
    ("(x: Frame) -> str", r"DataFrame: .*; write rows: list\[dict\], and pandas.DataFrame\(rows\)"),
    ("(x: Array['BF16']) -> str", "parameter 'x': numpy has no arrays of 'BF16'"),
    ("(x: np.ndarray[Any, Any]) -> str", r"elements: NDArray\[np.float32\]"),
    ("(x: Annotated[np.ndarray, Field(ge=0)]) -> str", "bounds are for scalars, lists of these"),
    ("(x: int = 'a') -> str", "its default does not fit the hint: expected int, got a text of 1"),
    ("(x: list[dict] = [1]) -> str", "its default does not fit the hint: 0: Input should be a"),
    ("(x: Annotated[int, Field(ge=0)] = -1) -> str", "Input should be greater than or equal to 0"),
    ("(x: int = Field(3, ge=0)) -> str", r"write x: Annotated\[int, Field\(ge=0\)\] = 0"),
    ("(x: Color = 'green') -> str", "expected one of 'red', 'blue', got a text of 5 letters"),
]
IN_BATCH: list[tuple[str, str]] = [
    ("(x: list) -> list[str]", r"in a batch write x: list\[\.\.\.\] with the hint of one entry"),
    ("(x: Annotated[list[int], Field(max_length=3)]) -> list[int]", r"write x: list\[\.\.\.\]"),
    ("(x: Optional[list[int]]) -> list[str]", r"each request has entries: write x: list\[\.\.\.\]"),
    ("(x: list[int] = [1]) -> list[str]", "each request has entries: write it without a default"),
    ("(x: int) -> list[int]", r"a list or an array as a parameter, such as text: list\[str\]"),
    ("(x: list[dict]) -> str", r"a list or an array of entries: write -> list\[str\]"),
    ("(x: list[int]) -> None", r"a list or an array of entries: write -> list\[None\]"),
]


@pytest.mark.parametrize(
    ("decorator", "head", "text"),
    [
        *(("@model", *row) for row in REFUSED),
        *(("@model(batch=4)", *row) for row in IN_BATCH),
    ],
)
def test_a_form_is_refused_with_the_line_to_write(
    tmp_path: Path, decorator: str, head: str, text: str
) -> None:
    source = f"{HEAD}\n{decorator}\ndef caption{head}: return ''\n"
    with pytest.raises(Exception, match=text), loaded(tmp_path, source):
        pass


@pytest.mark.parametrize(
    ("methods", "text"),
    [
        ("predict", "Caption has no __call__, which answers requests; rename its method predict"),
        ("setup predict", "; rename its method setup to __init__"),
        ("forward", "Caption has no __call__, which answers requests$"),
    ],
)
def test_a_class_of_other_systems_is_told_its_methods(
    tmp_path: Path, methods: str, text: str
) -> None:
    body = "".join(f"    def {name}(self, x: int) -> int: return x\n" for name in methods.split())
    with (
        pytest.raises(Exception, match=re.compile(text, re.MULTILINE)),
        loaded(tmp_path, f"{HEAD}\n@model\nclass Caption:\n{body}"),
    ):
        pass


def test_bounds_and_defaults_are_in_the_schema(tmp_path: Path) -> None:
    source = f"""{HEAD}
@model
def caption(
    x: Annotated[int, Field(ge=0, le=10, description="a number")] = 3,
    rows: list[Row] = [Row(1)],
    color: Color = Color.blue,
    image: Annotated[Image, Field(description="a cat")] = Image(b"")
) -> str:
    return str((x, rows, color))
"""
    with loaded(tmp_path, source) as model:
        assert "Color.blue" in ask(model, {})["output"]
        interface = interface_of(model.config)

    assert interface is not None
    rows = interface.input["properties"]
    number = {"type": "integer", "minimum": 0, "maximum": 10, "description": "a number"}
    assert {**number, "default": 3} == rows["x"]
    assert [{"a": 1, "b": "x"}] == rows["rows"]["default"]
    assert ["a", "b"] == [*rows["rows"]["items"]["properties"]]
    assert {"type": "string", "enum": ["red", "blue"], "default": "blue"} == rows["color"]
    assert "a cat" == rows["image"]["description"]
    assert "default" not in rows["image"]
    assert "$ref" not in str(interface.input)


@pytest.mark.parametrize(
    ("documented", "about"), [("class", "Of the class."), ("method", "Of the method."), ("", "")]
)
def test_a_class_is_described_by_its_method_or_by_itself(
    tmp_path: Path, documented: str, about: str
) -> None:
    of_class = '"""Of the class."""' if documented else "pass"
    of_method = '"""Of the method."""' if documented == "method" else "pass"
    source = f"""{HEAD}
@model
class Caption:
    {of_class}
    def __call__(self, x: int) -> int:
        {of_method}
        return x
"""
    with loaded(tmp_path, source) as model:
        interface = interface_of(model.config)

    assert interface is not None
    assert about == interface.about


EXAMPLES = """
from pathlib import Path
import PIL.Image
from zmqtriton import File, model

@model(examples=%s)
def caption(
    text: str,
    times: int = 1,
    file: File | None = None,
    image: PIL.Image.Image | None = None,
    rows: list[list[int]] | None = None,
) -> str:
    return text
"""


def test_examples_of_the_author_are_in_the_description(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("hi")
    file = f"Path({str(tmp_path / 'letter.txt')!r})"
    long = '{"text": "a" * 2000}'
    short = f'{{"text": "b", "times": 2, "file": {file}, "image": {PICTURE!r}}}'
    source = EXAMPLES % f"[{long}, {short}]"
    with loaded(tmp_path, source) as model:
        interface = interface_of(model.config)

    assert interface is not None
    second = {"text": "b", "times": 2, "file": "aGk=", "image": PICTURE}
    body = interface.operation("caption")["requestBody"]["content"]["application/json"]
    assert {
        "caption": {"value": {"text": "a" * 2000}},
        "caption 2": {"value": second},
    } == body["examples"]
    # a command shows the first that is short
    assert second == example_for(interface.input, interface.examples)


@pytest.mark.parametrize(
    ("examples", "text"),
    [
        ('[{"text": "a"}, {"text": 1}]', r"example 2\.text: expected str, got an integer"),
        ('[{"words": 1}]', r"example 1\.words: there is no such argument; there are: text, times"),
        ('[{"times": 1}]', r"example 1: it needs the argument 'text'"),
        ('[{"text": "a", "file": Path("/no")}]', r"example 1\.file: its file: .*No such file"),
        ('[{"text": {"a"}}]', r"example 1\.text: write it as JSON: Object of type set is not JSON"),
        ('[{"text": Path("/dev/null"), "file": [Path("/no")]}]', r"file: write it as JSON: Obj"),
        ('[{"text": "a", "rows": [[1], ["b", 2]]}]', r"example 1\.rows: "),
        ('{"text": "a"}', "example 1: it must be a dict of arguments: examples="),
        ('[{"text": "a" * 65536}]', "examples: the page has 65536 bytes for all"),
    ],
)
def test_an_example_that_the_function_refuses_is_told_to_its_author(
    tmp_path: Path, examples: str, text: str
) -> None:
    with pytest.raises(Exception, match=text), loaded(tmp_path, EXAMPLES % examples):
        pass


def test_an_example_may_have_a_text_from_a_file_and_lists_of_different_lengths(
    tmp_path: Path,
) -> None:
    (tmp_path / "letter.txt").write_text("grüße")
    rows = "[[1], [2, 3]]"
    source = EXAMPLES % f'[{{"text": Path({str(tmp_path / "letter.txt")!r}), "rows": {rows}}}]'
    with loaded(tmp_path, source) as model:
        interface = interface_of(model.config)

    assert interface is not None
    assert [{"text": "grüße", "rows": [[1], [2, 3]]}] == interface.examples


def test_a_function_is_described_whatever_its_default_and_docstring_have(tmp_path: Path) -> None:
    source = f"""{HEAD}
@model
def caption(x: dict = {{"a": 10**30, "b": float("nan"), "c": 2**63}}) -> int:
    return 1

# CPython 3.13 and newer do not compile it in its place
caption.__doc__ = "half a pair: \\ud800"
"""
    with loaded(tmp_path, source) as model:
        interface = interface_of(model.config)

    assert interface is not None
    document = orjson.loads(orjson.dumps(interface.operation("caption")))
    assert "half a pair: ?" == document["summary"]
    schema = document["requestBody"]["content"]["application/json"]["schema"]
    assert {"a": 1e30, "b": None, "c": 2**63} == schema["properties"]["x"]["default"]
