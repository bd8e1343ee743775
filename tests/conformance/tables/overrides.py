"""Configurations of load requests as texts: what protobuf's reader of JSON lets pass."""

from __future__ import annotations

from tests.conformance.cases import Case, Loaded

REPOSITORY = "configs"


def override(name: str, text: str, why: str) -> Case:
    return Case(f"json_{name}", Loaded("cfg_plain", {"config": text}), "F05", why)


_TENSOR = '"name": "A", "data_type": "TYPE_FP32", "dims": [1]'


def tensor(name: str, members: str, why: str) -> Case:
    return override(name, f'{{"backend": "python", "input": [{{{members}}}]}}', why)


CASES = (
    override("plain", '{"backend": "python", "max_batch_size": 2}', "as it should be"),
    override("with_bare_keys", '{backend: "python", max_batch_size: 2}', "without quotes"),
    override("with_single_quotes", "{'backend': 'python'}", "the other quotes"),
    override("with_a_comma_at_the_end", '{"backend": "python",}', "one too much"),
    override("with_two_commas", '{"backend": "python",, "max_batch_size": 2}', "two"),
    override("with_a_comma_first", '{, "backend": "python"}', "one too early"),
    tensor("with_a_comma_in_a_list", '"name": "A", "data_type": "TYPE_FP32", "dims": [1,]', "?"),
    override("with_a_comment", '{"backend": "python" /* x */}', "no comments"),
    override("with_a_line_comment", '{"backend": "python" // x\n}', "no comments"),
    override("with_something_behind", '{"backend": "python"} x', "more than a document"),
    override("with_two_documents", '{"backend": "python"}{}', "more than one"),
    override("with_white_space", ' \n\t{ "backend" : "python" }\r\n ', "no matter"),
    override("with_a_byte_order_mark", '\ufeff{"backend": "python"}', "no white space"),
    override("in_camel_case", '{"backend": "python", "maxBatchSize": 2}', "the other spelling"),
    override(
        "in_both_spellings",
        '{"backend": "python", "maxBatchSize": 2, "max_batch_size": 3}',
        "one field twice",
    ),
    override("twice", '{"backend": "python", "backend": "python"}', "one field twice"),
    override("with_a_number_as_text", '{"backend": "python", "max_batch_size": "2"}', "?"),
    override("with_a_float", '{"backend": "python", "max_batch_size": 2.0}', "a whole one"),
    override("with_a_fraction", '{"backend": "python", "max_batch_size": 2.5}', "no whole one"),
    override("with_an_exponent", '{"backend": "python", "max_batch_size": 2e0}', "a whole one"),
    override("with_a_plus", '{"backend": "python", "max_batch_size": +2}', "no number"),
    override("with_a_nought_first", '{"backend": "python", "max_batch_size": 02}', "octal?"),
    override("with_hexadecimal", '{"backend": "python", "max_batch_size": 0x2}', "no number"),
    override(
        "with_a_huge_number", '{"backend": "python", "max_batch_size": 4294967296}', "32 bits"
    ),
    override("with_true_as_number", '{"backend": "python", "max_batch_size": true}', "no number"),
    override("with_null", '{"backend": "python", "max_batch_size": null}', "as if absent"),
    override("with_null_as_list", '{"backend": "python", "input": null}', "as if absent"),
    override("with_null_in_a_list", '{"backend": "python", "input": [null]}', "no message"),
    override("with_a_number_as_string", '{"backend": 5}', "no text"),
    override("with_an_object_as_list", f'{{"backend": "python", "input": {{{_TENSOR}}}}}', "?"),
    override("with_a_list_as_object", '{"backend": "python", "version_policy": []}', "?"),
    override(
        "with_a_text_as_boolean",
        '{"backend": "python", "dynamic_batching": {"preserve_ordering": "true"}}',
        "?",
    ),
    override(
        "with_a_bare_true_as_boolean",
        '{"backend": "python", "dynamic_batching": {"preserve_ordering": true}}',
        "?",
    ),
    override(
        "with_a_number_as_boolean",
        '{"backend": "python", "dynamic_batching": {"preserve_ordering": 1}}',
        "?",
    ),
    tensor(
        "with_the_number_of_an_enum", '"name": "A", "data_type": 11, "dims": [1]', "as protobuf"
    ),
    tensor("with_an_unknown_number", '"name": "A", "data_type": 99, "dims": [1]', "no such type"),
    tensor("with_a_number_as_text_of_an_enum", '"name": "A", "data_type": "11", "dims": [1]', "?"),
    tensor("with_camel_case_inside", '"name": "A", "dataType": "TYPE_FP32", "dims": [1]', "?"),
    tensor("with_dims_as_a_number", '"name": "A", "data_type": "TYPE_FP32", "dims": 1', "a list"),
    tensor("with_dims_as_texts", '"name": "A", "data_type": "TYPE_FP32", "dims": ["1"]', "?"),
    tensor("with_a_float_in_dims", '"name": "A", "data_type": "TYPE_FP32", "dims": [1.5]', "?"),
    tensor("with_escapes", '"name": "\\u0041", "data_type": "TYPE_FP32", "dims": [1]', "an A"),
    tensor("with_a_wrong_escape", '"name": "\\x41", "data_type": "TYPE_FP32", "dims": [1]', "?"),
    tensor("with_half_a_pair", '"name": "\\ud800", "data_type": "TYPE_FP32", "dims": [1]', "?"),
    tensor("with_a_line_break", '"name": "A\nB", "data_type": "TYPE_FP32", "dims": [1]', "?"),
    override("with_an_unknown_key", '{"backend": "python", "unknown": 1}', "no such field"),
    override("with_an_empty_key", '{"backend": "python", "": 1}', "no such field"),
    override(
        "of_parameters",
        '{"backend": "python", "parameters": {"a": {"string_value": "b"}}}',
        "a map",
    ),
    override(
        "of_parameters_twice",
        '{"backend": "python", "parameters": {'
        '"a": {"string_value": "b"}, "a": {"string_value": "c"}}}',
        "one key twice",
    ),
    override(
        "of_parameters_as_a_list",
        '{"backend": "python", "parameters": [{"key": "a", "value": {"string_value": "b"}}]}',
        "no list",
    ),
    override("of_parameters_as_texts", '{"backend": "python", "parameters": {"a": "b"}}', "?"),
    override("that_ends_in_a_string", '{"backend": "pyth', "half of it"),
    override("that_ends_in_a_key", '{"backend', "half of it"),
    override("that_is_a_text", '"x"', "of no kind"),
    override("that_is_null", "null", "of no kind"),
    override("that_is_true", "true", "of no kind"),
    override("that_is_a_number", "1", "of no kind"),
    override("that_is_white_space", " ", "nothing"),
    override("of_many_levels", '{"backend": ' + "[" * 200 + "]" * 200 + "}", "too deep"),
)
