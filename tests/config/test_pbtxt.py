"""The texts of configs, and the places of their faults."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zmqtriton_protos
from tests.config.growth import growth
from tests.support.refusals import refusal
from zmqtriton.config.errors import ConfigError, Problem
from zmqtriton.config.pbtxt import (
    MAX_CONFIG_BYTES,
    parse_json,
    parse_override,
    parse_text,
    read_config,
    strict,
)
from zmqtriton.config.positions import PositionIndex, locate, unknown_name_problems

# ------------------------------------------------------------------------------- pbtxt
# Reading config.pbtxt and JSON overrides, and what their errors tell.


BOTH_FORMS = """
# a comment
name: "m"; backend: "python"
input [ { name: "A" data_type: TYPE_FP32 dims: [ -1, 3 ] }, { name: "B", data_type: TYPE_STRING, dims: 1 } ]
output { name: "C" data_type: TYPE_INT64 dims: 4 dims: 5 }
parameters { key: "a" value: { string_value: "1" } }
parameters: { key: "b", value: { string_value: "2" } }
"""  # noqa: E501


def test_all_forms_of_the_text_format_are_read() -> None:
    config = parse_text(BOTH_FORMS)

    assert ("m", "python") == (config.name, config.backend)
    assert [("A", [-1, 3]), ("B", [1])] == [(i.name, list(i.dims)) for i in config.input]
    assert [4, 5] == list(config.output[0].dims)
    assert {"a": "1", "b": "2"} == {k: v.string_value for k, v in config.parameters.items()}


def test_an_unknown_enum_value_is_shown_with_the_value_that_was_meant() -> None:
    assert (
        "failed to read text proto from c\n"
        'c:2:13: Enum type "inference.DataType" has no value named TYPE_FP_32. '
        "Did you mean 'TYPE_FP32'?\n"
        "  \tdata_type: TYPE_FP_32\n"
        "  \t           ^"
    ) == refusal(ConfigError, parse_text, "input {\n\tdata_type: TYPE_FP_32\n}", "c")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config.pbtxt"


def test_a_file_is_read_by_its_path(path: Path) -> None:
    path.write_text('name: "m"')

    assert "m" == read_config(path).name


def test_a_missing_file_names_the_path_and_the_cause(path: Path) -> None:
    assert f"failed to open text file for read {path}: No such file or directory" == refusal(
        ConfigError, read_config, path
    )


@pytest.mark.parametrize(
    ("content", "pattern"),
    [
        pytest.param(
            'name: "m"'.encode("utf-16"), "the text is UTF-16, not UTF-8", id="utf16_is_named"
        ),
        pytest.param(
            b'name: "m"\n# caf\xe9\n',
            r"config\.pbtxt:2: the text is not UTF-8",
            id="a_file_that_is_not_utf8_names_the_line",
        ),
        pytest.param(
            b"#" * (MAX_CONFIG_BYTES + 1),
            r"exceeds the limit of 1048576 bytes",
            id="a_file_that_would_block_the_server_is_refused_unread",
        ),
    ],
)
def test_a_file_that_is_no_text_is_refused(path: Path, content: bytes, pattern: str) -> None:
    path.write_bytes(content)

    with pytest.raises(ConfigError, match=pattern):
        read_config(path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"max_batch_siz": 4}', "Did you mean 'max_batch_size'?"),
        ('{"input": [{"data_type": "TYPE_FP_32"}]}', "Did you mean 'TYPE_FP32'?"),
        ("[1]", "the model configuration must be a JSON object"),
        ("null", "the model configuration must be a JSON object"),
        ('{"name": "a",\n nam}', "2:2: Expecting property name"),
        ('{"max_batch_size": 2147483648}', "(max_batch_size): invalid value 2147483648 for type"),
        ('{"max_batch_size": ' + "9" * 5000 + "}", "an integer of thousands of digits"),
        ('{"name": "a", "name": "b"}', "duplicate key name"),
        ('{"dynamic_batching": {}, "sequence_batching": {}}', "scheduling_choice"),
        ('{"input": ' + "[" * 100_000, "nested too deeply"),
        ('{"name": "\\ud800"}', "surrogate"),
        ('{"name": "' + "x" * MAX_CONFIG_BYTES + '"}', "exceeds the limit"),
    ],
)
def test_a_wrong_override_tells_what_is_wrong(text: str, expected: str) -> None:
    text_of_error = refusal(ConfigError, parse_override, text)

    assert text_of_error.startswith("Invalid config override: ")
    assert expected in text_of_error


@pytest.mark.slow
@settings(max_examples=150)
@given(st.text(alphabet='{}[]:"\\,-.#\n abinputdimsTYPE_FP32019', max_size=60))
def test_any_text_is_either_read_or_a_config_error(text: str) -> None:
    for parse in (parse_text, parse_json):
        try:
            config = parse(text)
        except ConfigError:
            continue
        assert isinstance(config, zmqtriton_protos.ModelConfig)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["name", "input", "dims", "parameters", "version_policy", "latest", "x"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@pytest.mark.slow
@settings(max_examples=150)
@given(json_values)
def test_any_json_is_either_read_or_a_config_error(value: object) -> None:
    try:
        config = parse_json(json.dumps(value))
    except ConfigError:
        return
    assert isinstance(config, zmqtriton_protos.ModelConfig)


# ------------------------------------------------------------------------ lenient json
# JSON as Triton's reader takes it, made strict.


_TEXTS = st.text("abz_$é \n\t'\"\\/1:,{}[]", max_size=8)


_DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
)


#: Texts of any length that a client may send to have a model loaded.
_HOSTILE: dict[str, Callable[[int], str]] = {
    "a string without an end": lambda n: '{"' + '\\"' * n,
    "one in single quotes": lambda n: "{'" + "\\'" * n,
    "quotes of both kinds": lambda n: "{" + "'\"" * n,
    "a space without an end": lambda n: "{a" + " " * n + "}",
    "commas": lambda n: "{a: [" + ", " * n,
    "words": lambda n: "{" + "a " * n,
    "a key that comes twice": lambda n: (
        "{" + "".join(f'"{k}":1,' for k in range(n)) + '"z":1,"z":1}'
    ),
    "a long name": lambda n: '{"' + "abcdefgh" * n + '":1}',
}


def test_bare_words_single_quotes_and_commas_at_the_end_are_made_strict() -> None:
    document = strict("{name: 'm', 'input': [{dims: [1, -2e3,],},], \"a\\q\": 'say \"x\"\n',}")

    assert {"name": "m", "input": [{"dims": [1, -2000.0]}], "aq": 'say "x"\n'} == json.loads(
        document
    )


@pytest.mark.slow
@given(_DOCUMENTS, st.integers())
def test_a_document_is_the_same_however_leniently_it_is_written(document: Any, seed: int) -> None:
    assert document == json.loads(strict(_written(document, Random(seed))))


@pytest.mark.parametrize("text", ['{"a": "\\\'b\'}', '{"\\u0041$x : 1}', "{a: 'b}", "{'"])
def test_a_string_without_an_end_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="Invalid config override: "):
        parse_override(text)


@pytest.mark.parametrize("kind", _HOSTILE)
def test_the_time_for_a_text_grows_as_its_length_does(kind: str) -> None:
    make = _HOSTILE[kind]

    grown = growth(_refuse, make(2_000), make(16_000))

    assert grown < 30  # for eight times the length; where each sign begins anew, 64


def _refuse(text: str) -> None:
    with contextlib.suppress(ConfigError):
        parse_override(text)


def _written(value: Any, random: Random) -> str:
    """Write a document with all that Triton's reader forgives, here and there."""
    space = lambda: random.choice(["", "", " ", "\n\t"])  # noqa: E731
    comma = lambda inner: random.choice(["", ",", " , "]) if inner else ""  # noqa: E731
    if isinstance(value, str):
        return _quoted(value, random)
    if isinstance(value, list):
        inner = [space() + _written(one, random) + space() for one in value]
        return "[" + ",".join(inner) + comma(inner) + "]"
    if isinstance(value, dict):
        inner = [
            f"{space()}{_key(key, random)}{space()}:{_written(one, random)}{space()}"
            for key, one in value.items()
        ]
        return "{" + ",".join(inner) + comma(inner) + "}"
    return json.dumps(value)


def _key(key: str, random: Random) -> str:
    is_word = key.isascii() and key.replace("$", "_").isidentifier()
    return key if is_word and random.random() < 0.5 else _quoted(key, random)


def _quoted(text: str, random: Random) -> str:
    if random.random() < 0.5:
        return json.dumps(text)
    return "'" + text.replace("\\", "\\\\").replace("'", random.choice(["\\'", "\\u0027"])) + "'"


# --------------------------------------------------------------------------- positions
# Positions in a config.pbtxt, and their place in an error's text.


TEXT = """# of a model
name: "m"
input [
  { name: "A" dims: [ 1, 2 ] },
  { name: "B"
    dims: [ 0 ] }
]
input { name: 'C' }
dynamic_batching <
  priority_queue_policy { key: 1 value { max_queue_size: 2 } }
  priority_queue_policy: { key: 3, value: { max_queue_size: 2 } };
>
parameters [ { key: "a" value { string_value: "x # no comment" } } ]
"""


def test_every_unknown_name_is_found_with_what_was_meant() -> None:
    text = 'nam: "m"\ninput { data_type: TYPE_F32 dim: [ 1 ] x { y: 1 } }\nmax_batch_size: 1\n'

    problems = list(unknown_name_problems(PositionIndex(text), "c"))

    assert [
        ("nam", 1, 1, "name"),
        ("TYPE_F32", 2, 20, "TYPE_FP32"),
        ("dim", 2, 29, "dims"),
        ("x", 2, 40, ""),
    ] == [(_last_name(p), p.line, p.column, p.suggestion) for p in problems]


def _last_name(problem: Problem) -> str:
    return problem.detail.rstrip(".").split(" ")[-1].strip('"')


def test_what_stands_nowhere_in_the_file_names_the_file_alone(path: Path) -> None:
    path.write_text(TEXT)

    somewhere = locate(Problem("no platform", ("platform",)), path)
    of_no_field = locate(Problem("no such backend"), path)
    of_no_file = locate(Problem("no name", ("name",)), None)

    assert [f"no platform (in {path})", "no such backend", "no name"] == [
        str(somewhere),
        str(of_no_field),
        str(of_no_file),
    ]


@pytest.mark.slow
@settings(max_examples=200)
@given(st.text(alphabet="{}[]<>:\"'\\,-.#\n abinputdims09;", max_size=80))
def test_any_text_has_positions(text: str) -> None:
    positions = PositionIndex(text)

    assert all(1 <= named.position.line <= text.count("\n") + 1 for named in positions.fields)
