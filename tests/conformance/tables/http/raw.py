"""Bodies that are one tensor and nothing else, for models of all kinds of shapes."""

from __future__ import annotations

from tests.conformance.cases import Case, Http
from tests.conformance.repositories import Written

REPOSITORY = "raw"
OPTIONS = ("--model-control-mode=explicit", "--load-model=*")

_ECHO = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("Y", request.inputs()[0].as_numpy())])
            for request in requests
        ]
"""


def _echo(name: str, datatype: str, dims: str, batches: int = 0, more: str = "") -> Written:
    config = (
        f'backend: "python"\nmax_batch_size: {batches}\n'
        f'input {{ name: "X" data_type: TYPE_{datatype} dims: [ {dims} ] {more} }}\n'
        f'output {{ name: "Y" data_type: TYPE_{datatype} dims: [ {dims} ] {more} }}\n'
        "instance_group [ { count: 1 kind: KIND_CPU } ]\n"
    )
    return Written(name, config, {"1/model.py": _ECHO})


MODELS = (
    _echo("raw_text", "STRING", "1"),
    _echo("raw_texts", "STRING", "2"),
    _echo("raw_any_texts", "STRING", "-1"),
    _echo("raw_text_of_two", "STRING", "1, 1"),
    _echo("raw_text_of_any_two", "STRING", "1, -1"),
    _echo("raw_text_in_batches", "STRING", "1", 4),
    _echo("raw_any_texts_in_batches", "STRING", "-1", 4),
    _echo("raw_bool", "BOOL", "2"),
    _echo("raw_half", "FP16", "2"),
    _echo("raw_brain", "BF16", "2"),
    _echo("raw_bytes", "UINT8", "-1"),
    _echo("raw_long", "INT64", "-1, 2"),
    _echo("raw_two_free", "INT8", "-1, -1"),
    _echo("raw_in_batches", "INT8", "3", 4),
    _echo("raw_any_in_batches", "INT8", "-1", 4),
)


def raw(name: str, model: str, body: bytes, why: str, length: str = "0", **headers: str) -> Case:
    own_headers = {"Inference-Header-Content-Length": length}
    own_headers.update({key.replace("_", "-"): value for key, value in headers.items()})
    return Case(
        f"raw_body_{name}", Http("POST", f"/v2/models/{model}/infer", body, own_headers), "C24", why
    )


CASES = (
    raw("of_a_text", "raw_text", b"hello", "one element without its length"),
    raw("of_no_text", "raw_text", b"", "an empty one"),
    raw("of_a_text_with_its_length", "raw_text", b"\x05\0\0\0hello", "the length is part of it"),
    raw("of_a_text_for_two", "raw_texts", b"hello", "one element only"),
    raw("of_a_text_for_any", "raw_any_texts", b"hello", "a free dimension"),
    raw("of_a_text_in_two_dimensions", "raw_text_of_two", b"hello", "one element"),
    raw("of_a_text_in_two_free", "raw_text_of_any_two", b"hello", "a free dimension"),
    raw("of_a_text_in_a_batch", "raw_text_in_batches", b"hello", "a batch of one"),
    raw("of_a_text_in_a_free_batch", "raw_any_texts_in_batches", b"hello", "a free dimension"),
    raw("of_booleans", "raw_bool", b"\0\1", "a byte each"),
    raw("of_wrong_booleans", "raw_bool", b"\0\2", "no boolean"),
    raw("of_a_boolean_too_much", "raw_bool", b"\0\1\1", "two"),
    raw("of_halves", "raw_half", bytes(4), "two bytes each"),
    raw("of_brain_floats", "raw_brain", bytes(4), "no type of numpy's"),
    raw("of_any_bytes", "raw_bytes", b"abc", "as many as there are"),
    raw("of_no_bytes", "raw_bytes", b"", "none"),
    raw("of_longs", "raw_long", bytes(32), "rows of two"),
    raw("of_a_long_too_few", "raw_long", bytes(24), "a row and a half"),
    raw("of_half_a_long", "raw_long", bytes(20), "no whole element"),
    raw("of_two_free", "raw_two_free", b"abcd", "nobody can know"),
    raw("in_a_batch", "raw_in_batches", b"abc", "a batch of one"),
    raw("of_two_batches", "raw_in_batches", b"abcdef", "one alone"),
    raw("of_any_in_a_batch", "raw_any_in_batches", b"abcdef", "a batch of one"),
    raw("of_an_unknown_model", "raw_nobody", b"a", "no such model"),
    raw("with_a_sign", "raw_bytes", b"abc", "a number", "+0"),
    raw("with_two_noughts", "raw_bytes", b"abc", "a number", "00"),
    raw("with_nothing_as_length", "raw_bytes", b"abc", "a number", ""),
    raw("with_a_negative_length", "raw_bytes", b"abc", "below 0", "-1"),
    raw("with_a_length_beyond", "raw_bytes", b"abc", "more than there is", "4"),
    raw("with_all_of_it_as_json", "raw_bytes", b"{}", "no inputs", "2"),
    raw("with_a_coding_that_is_none", "raw_bytes", b"abc", "?", Content_Encoding="identity"),
    raw("with_a_wrong_coding", "raw_bytes", b"abc", "no gzip", Content_Encoding="gzip"),
    raw("that_is_answered_in_gzip", "raw_bytes", b"abc", "?", Accept_Encoding="identity"),
)
