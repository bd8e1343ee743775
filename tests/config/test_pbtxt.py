"""Reading config.pbtxt and JSON overrides, and what their errors tell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zmqtriton_protos
from zmqtriton.config.errors import ConfigError
from zmqtriton.config.pbtxt import (
    MAX_CONFIG_BYTES,
    parse_json,
    parse_override,
    parse_text,
    read_config,
)

BOTH_FORMS = """
# a comment
name: "m"; backend: "python"
input [ { name: "A" data_type: TYPE_FP32 dims: [ -1, 3 ] }, { name: "B", data_type: TYPE_STRING, dims: 1 } ]
output { name: "C" data_type: TYPE_INT64 dims: 4 dims: 5 }
parameters { key: "a" value: { string_value: "1" } }
parameters: { key: "b", value: { string_value: "2" } }
"""  # noqa: E501


def text_of(error: pytest.ExceptionInfo[ConfigError]) -> str:
    return error.value.text


def test_all_forms_of_the_text_format_are_read() -> None:
    config = parse_text(BOTH_FORMS)

    assert ("m", "python") == (config.name, config.backend)
    assert [("A", [-1, 3]), ("B", [1])] == [(i.name, list(i.dims)) for i in config.input]
    assert [4, 5] == list(config.output[0].dims)
    assert {"a": "1", "b": "2"} == {k: v.string_value for k, v in config.parameters.items()}


def test_an_unknown_field_is_shown_with_its_place_and_the_name_that_was_meant() -> None:
    with pytest.raises(ConfigError) as error:
        parse_text('name: "m"\n  max_batch_sizes: 4\n', "/r/m/config.pbtxt")

    expected = (
        "failed to read text proto from /r/m/config.pbtxt\n"
        '/r/m/config.pbtxt:2:3: Message type "inference.ModelConfig" has no field named '
        "\"max_batch_sizes\". Did you mean 'max_batch_size'?\n"
        "    max_batch_sizes: 4\n"
        "    ^"
    )
    assert expected == text_of(error)


def test_an_unknown_enum_value_is_shown_with_the_value_that_was_meant() -> None:
    with pytest.raises(ConfigError) as error:
        parse_text("input {\n\tdata_type: TYPE_FP_32\n}", "c")

    expected = (
        "failed to read text proto from c\n"
        'c:2:13: Enum type "inference.DataType" has no value named TYPE_FP_32. '
        "Did you mean 'TYPE_FP32'?\n"
        "  \tdata_type: TYPE_FP_32\n"
        "  \t           ^"
    )
    assert expected == text_of(error)


def test_nothing_is_proposed_when_nothing_is_near() -> None:
    with pytest.raises(ConfigError) as error:
        parse_text("zzz: 1")

    assert "Did you mean" not in text_of(error)


def test_of_a_very_long_line_only_the_part_around_the_error_is_shown() -> None:
    text = 'name: "' + "x" * 5000 + '" nam: "y" ' + "# " + "z" * 5000

    with pytest.raises(ConfigError) as error:
        parse_text(text)

    shown, caret = text_of(error).splitlines()[-2:]
    assert len(shown) < 120
    assert 'nam: "y"' in shown
    assert shown.index('nam: "y"') == caret.index("^")


@pytest.mark.parametrize(
    "text",
    [
        'name: "m',
        "input { dims: [1, 2 }",
        'name: "a" name: "b"',
        "dynamic_batching {} sequence_batching {}",
        "max_batch_size: 2147483648",
        "input {" * 100_000,
        'name: "\\xff"',
        "}",
    ],
)
def test_a_wrong_text_is_a_config_error(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^failed to read text proto from config.pbtxt"):
        parse_text(text)


def test_a_file_is_read_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "config.pbtxt"
    path.write_text('name: "m"')

    assert "m" == read_config(path).name


def test_a_missing_file_names_the_path_and_the_cause(tmp_path: Path) -> None:
    path = tmp_path / "config.pbtxt"

    with pytest.raises(ConfigError) as error:
        read_config(path)

    assert f"failed to open text file for read {path}: No such file or directory" == text_of(error)


def test_the_mark_that_editors_of_windows_write_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "config.pbtxt"
    path.write_bytes(b'\xef\xbb\xbfname: "m"\r\nmax_batchsize: 1\r\n')

    with pytest.raises(ConfigError, match=r"config\.pbtxt:2:1: .*max_batchsize"):
        read_config(path)
    path.write_bytes(b'\xef\xbb\xbfname: "m"\r\n')
    assert "m" == read_config(path).name


def test_utf16_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config.pbtxt"
    path.write_bytes('name: "m"'.encode("utf-16"))

    with pytest.raises(ConfigError, match="the text is UTF-16, not UTF-8"):
        read_config(path)


def test_a_file_that_is_not_utf8_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "config.pbtxt"
    path.write_bytes(b'name: "m"\n# caf\xe9\n')

    with pytest.raises(ConfigError, match=r"config\.pbtxt:2: the text is not UTF-8"):
        read_config(path)


def test_a_file_that_would_block_the_server_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "config.pbtxt"
    path.write_bytes(b"#" * (MAX_CONFIG_BYTES + 1))

    with pytest.raises(ConfigError, match=r"exceeds the limit of 1048576 bytes"):
        read_config(path)


@pytest.mark.parametrize("key", ["max_batch_size", "maxBatchSize"])
def test_json_may_use_either_spelling(key: str) -> None:
    document = {key: 4, "version_policy": {"specific": {"versions": ["1", 2]}}}

    config = parse_json(json.dumps(document))

    assert 4 == config.max_batch_size
    assert [1, 2] == list(config.version_policy.specific.versions)


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
    with pytest.raises(ConfigError) as error:
        parse_override(text)

    assert text_of(error).startswith("Invalid config override: ")
    assert expected in text_of(error)


@pytest.mark.parametrize(
    "text",
    [
        '{name: "a\'b", max_batch_size: 2}',
        "{'name': 'a\\'b', 'max_batch_size': 2}",
        '{"name": "a\'b", "max_batch_size": 2,}',
        '{"name": "a\\\'b", "max_batch_size": "2", "input": [null, ],}',
    ],
)
def test_json_may_be_what_triton_forgives(text: str) -> None:
    config = parse_override(text)

    assert ("a'b", 2, 0) == (config.name, config.max_batch_size, len(config.input))


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


@settings(max_examples=150)
@given(json_values)
def test_any_json_is_either_read_or_a_config_error(value: object) -> None:
    try:
        config = parse_json(json.dumps(value))
    except ConfigError:
        return
    assert isinstance(config, zmqtriton_protos.ModelConfig)
