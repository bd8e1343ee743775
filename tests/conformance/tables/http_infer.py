"""The form of requests and responses over HTTP, good and bad: JSON, binary parts, compression."""

from __future__ import annotations

import gzip
import json
import zlib

from tests.conformance.cases import (
    Case,
    Http,
    binary,
    coded,
    elements,
    get,
    infer,
    post,
    tensor,
)

REPOSITORY = "main"
PATH = "/v2/models/identity_fp32/infer"
DATA = b"\0\0\x80\x3f\0\0\0\x40"
ONE = {"name": "INPUT0", "shape": [2], "datatype": "FP32"}
GOOD = {"inputs": [{**ONE, "data": [1, 2]}]}
TEXT = json.dumps(GOOD).encode()
BINARY = {**ONE, "parameters": {"binary_data_size": 8}}


def identity(data: object, **changes: object) -> Http:
    return post(PATH, {"inputs": [{**ONE, "data": data, **changes}]})


def sized(document: object, tail: bytes = DATA, length: str = "", path: str = PATH) -> Http:
    text = json.dumps(document).encode()
    headers = {"Inference-Header-Content-Length": length or str(len(text))}
    return Http("POST", path, text + tail, headers)


def compressed(coding: str, body: bytes, **more: str) -> Http:
    return Http("POST", PATH, body, {"Content-Encoding": coding, **more})


CASES = (
    # ------------------------------------------------------------------------ JSON
    Case("plain_request", post(PATH, GOOD), "C20", "the simplest request"),
    Case("id_comes_back", post(PATH, {"id": "x", **GOOD}), "C25", "first of all"),
    Case("empty_id", post(PATH, {"id": "", **GOOD}), "C25", "no id comes back"),
    Case("version_in_the_path", post(f"{PATH[:-6]}/versions/1/infer", GOOD), "C08", "the same"),
    Case("unknown_members", post(PATH, {"x": 1, **GOOD}), "C20", "are ignored"),
    Case(
        "nested_data",
        infer("add_sub", *(tensor(n, "FP32", [[1.0] * 16], [1, 16]) for n in ("INPUT0", "INPUT1"))),
        "C22",
        "row by row",
    ),
    Case("ragged_data", identity([[1], 2]), "C22", "only the number of elements counts"),
    Case("deep_data", identity(json.loads("[" * 101 + "1" + "]" * 101)), "C22", "nested too deep"),
    Case("integers_as_floats", identity([1, 2.5]), "C22", "numbers are converted"),
    Case("text_as_float", identity(["1", "2"]), "C22", "a text is no number"),
    Case("null_as_float", identity([None, 1]), "C22", "null is no number"),
    Case(
        "float_as_integer",
        infer("all_types", tensor("INT32", "INT32", [1.5])),
        "C22",
        "a float is no integer",
    ),
    Case(
        "integer_out_of_range",
        infer("all_types", tensor("INT8", "INT8", [300])),
        "C22",
        "more than the type holds",
    ),
    Case(
        "negative_as_unsigned",
        infer("all_types", tensor("UINT8", "UINT8", [-1])),
        "C22",
        "less than the type holds",
    ),
    Case(
        "number_as_boolean",
        infer("all_types", tensor("BOOL", "BOOL", [2])),
        "C22",
        "a number is no boolean",
    ),
    Case(
        "number_as_text",
        infer("all_types", tensor("STRING", "BYTES", [1])),
        "C22",
        "a number is no text",
    ),
    Case("too_few_elements", identity([1]), "C22", "fewer than the shape says"),
    Case("too_many_elements", identity([1, 2, 3]), "C22", "more than the shape says"),
    Case("data_that_is_a_number", identity(1), "C22", "data is an array"),
    Case("data_that_is_an_object", identity({}), "C22", "data is an array"),
    Case(
        "fp16_in_json",
        infer("all_types", tensor("FP16", "FP16", [1])),
        "C22",
        "FP16 travels as binary only",
    ),
    Case(
        "fp16_out_in_json",
        binary("all_types", ("FP16", "FP16", [1], b"\0\x3c")),
        "C27",
        "FP16 comes back as binary only",
    ),
    Case("negative_dimension", identity([1, 2], shape=[-1]), "C22", "a dimension is not negative"),
    Case("dimension_that_is_a_text", identity([1, 2], shape=["2"]), "C22", "nor a text"),
    Case(
        "shape_that_is_missing",
        post(PATH, {"inputs": [{"name": "INPUT0", "datatype": "FP32", "data": [1]}]}),
        "C20",
        "a shape is needed",
    ),
    Case(
        "type_that_is_missing",
        post(PATH, {"inputs": [{"name": "INPUT0", "shape": [1], "data": [1]}]}),
        "C20",
        "a type is needed",
    ),
    Case(
        "name_that_is_missing",
        post(PATH, {"inputs": [{"shape": [1], "datatype": "FP32", "data": [1]}]}),
        "C20",
        "a name is needed",
    ),
    Case("name_that_is_a_number", identity([1, 2], name=1), "C20", "a name is a text"),
    Case("type_that_is_unknown", identity([1, 2], datatype="FP31"), "C20", "no such type"),
    Case("inputs_that_are_missing", post(PATH, {}), "C20", "inputs are needed"),
    Case("inputs_that_are_an_object", post(PATH, {"inputs": {}}), "C20", "inputs are an array"),
    Case("input_that_is_a_number", post(PATH, {"inputs": [1]}), "C20", "an input is an object"),
    Case("request_that_is_an_array", post(PATH, []), "C20", "a request is an object"),
    Case("request_that_is_empty", post(PATH), "C20", "no body at all"),
    Case("request_that_is_cut", post(PATH, '{"inputs":['), "C20", "JSON that ends too early"),
    Case("request_that_is_no_json", post(PATH, "name=value"), "C20", "no JSON"),
    Case("request_in_another_charset", post(PATH, body=b'{"id":"\xff\xfe"}'), "C20", "no UTF-8"),
    Case("parameters_that_are_a_number", post(PATH, {**GOOD, "parameters": 1}), "C28", "an object"),
    Case("outputs_that_are_a_number", post(PATH, {**GOOD, "outputs": 1}), "C20", "an array"),
    Case("outputs_that_are_empty", post(PATH, {**GOOD, "outputs": []}), "C20", "all of them"),
    Case("output_without_a_name", post(PATH, {**GOOD, "outputs": [{}]}), "C20", "a name is needed"),
    Case(
        "json_with_a_form_as_type",
        post(PATH, GOOD, headers={"Content-Type": "application/x-www-form-urlencoded"}),
        "C35",
        "the type of a request is ignored",
    ),
    # ---------------------------------------------------------------------- binary
    Case("binary_input", sized({"inputs": [BINARY]}), "C23", "JSON first, then the bytes"),
    Case(
        "binary_output",
        post(PATH, {**GOOD, "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}]}),
        "C26",
        "where one output is asked for so",
    ),
    Case(
        "all_outputs_as_binary",
        post(PATH, {**GOOD, "parameters": {"binary_data_output": True}}),
        "C26",
        "where none is named",
    ),
    Case(
        "named_output_stays_json",
        post(
            PATH,
            {**GOOD, "parameters": {"binary_data_output": True}, "outputs": [{"name": "OUTPUT0"}]},
        ),
        "C26",
        "a named one follows its own parameter",
    ),
    Case(
        "one_output_binary_one_not",
        coded(
            "return [pb_utils.InferenceResponse(tensors(np.ones(1, 'f4'), "
            "np.array([b'x'], dtype='O')))]",
            outputs=[{"name": "Y", "parameters": {"binary_data": True}}, {"name": "SAID"}],
        ),
        "C26",
        "both kinds in one response",
    ),
    Case(
        "empty_binary_output",
        infer(
            "all_types",
            tensor("FP32", "FP32", []),
            outputs=[{"name": "FP32_BACK", "parameters": {"binary_data": True}}],
        ),
        "C26",
        "no bytes, so plain JSON",
    ),
    Case(
        "binary_data_that_is_no_boolean",
        post(PATH, {**GOOD, "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": 1}}]}),
        "C26",
        "a flag must be a boolean",
    ),
    Case("binary_too_short", sized({"inputs": [BINARY]}, DATA[:4]), "C23", "bytes are missing"),
    Case("binary_too_long", sized({"inputs": [BINARY]}, DATA + b"xx"), "C23", "bytes are left"),
    Case("binary_without_a_header", post(PATH, {"inputs": [BINARY]}), "C23", "no length given"),
    Case("binary_beyond_the_body", sized({"inputs": [BINARY]}, DATA, "9999"), "C23", "too long"),
    Case(
        "binary_with_a_negative_length", sized({"inputs": [BINARY]}, DATA, "-1"), "C23", "below 0"
    ),
    Case(
        "binary_with_a_text_as_length", sized({"inputs": [BINARY]}, DATA, "x"), "C23", "no number"
    ),
    Case(
        "binary_size_that_is_a_text",
        sized({"inputs": [{**ONE, "parameters": {"binary_data_size": "8"}}]}),
        "C23",
        "a size is a number",
    ),
    Case(
        "binary_size_that_is_negative",
        sized({"inputs": [{**ONE, "parameters": {"binary_data_size": -8}}]}),
        "C23",
        "a size is not negative",
    ),
    Case(
        "binary_size_unlike_the_shape",
        sized({"inputs": [{**ONE, "parameters": {"binary_data_size": 4}}]}, DATA[:4]),
        "C47",
        "fewer bytes than the shape needs",
    ),
    Case("data_and_binary", sized({"inputs": [{**BINARY, "data": [1, 2]}]}), "C21", "only one"),
    Case("neither_data_nor_binary", post(PATH, {"inputs": [ONE]}), "C21", "one of them"),
    Case(
        "input_in_an_unknown_region",
        post(
            PATH,
            {
                "inputs": [
                    {
                        **ONE,
                        "parameters": {
                            "shared_memory_region": "nowhere",
                            "shared_memory_byte_size": 8,
                        },
                    }
                ]
            },
        ),
        "C93",
        "a region that is not registered",
    ),
    Case(
        "bytes_with_a_length_beyond_the_data",
        sized(
            {
                "inputs": [
                    {
                        "name": "CODE",
                        "shape": [1],
                        "datatype": "BYTES",
                        "parameters": {"binary_data_size": 6},
                    }
                ]
            },
            b"\xff\0\0\0ab",
            path="/v2/models/coded/infer",
        ),
        "C47",
        "a length prefix beyond the data",
    ),
    Case(
        "bytes_with_half_a_length",
        sized(
            {
                "inputs": [
                    {
                        "name": "CODE",
                        "shape": [1],
                        "datatype": "BYTES",
                        "parameters": {"binary_data_size": 2},
                    }
                ]
            },
            b"\1\0",
            path="/v2/models/coded/infer",
        ),
        "C47",
        "half a length prefix",
    ),
    Case(
        "bytes_with_too_few_elements",
        sized(
            {
                "inputs": [
                    {
                        "name": "STRING",
                        "shape": [2],
                        "datatype": "BYTES",
                        "parameters": {"binary_data_size": 5},
                    }
                ]
            },
            elements("a"),
            path="/v2/models/all_types/infer",
        ),
        "C47",
        "one element of two",
    ),
    Case(
        "raw_binary",
        Http("POST", PATH, DATA, {"Inference-Header-Content-Length": "0"}),
        "C24",
        "the body is the input",
    ),
    Case(
        "raw_binary_of_nothing",
        Http("POST", PATH, b"", {"Inference-Header-Content-Length": "0"}),
        "C24",
        "an empty body",
    ),
    Case(
        "raw_binary_of_two_inputs",
        Http("POST", "/v2/models/add_sub/infer", DATA, {"Inference-Header-Content-Length": "0"}),
        "C24",
        "which one would it be",
    ),
    Case(
        "raw_binary_of_half_an_element",
        Http("POST", PATH, DATA[:3], {"Inference-Header-Content-Length": "0"}),
        "C24",
        "three bytes of an FP32",
    ),
    # ----------------------------------------------------------------- compression
    Case("gzip_in", compressed("gzip", gzip.compress(TEXT, mtime=0)), "C30", "a request with gzip"),
    Case("deflate_in", compressed("deflate", zlib.compress(TEXT)), "C30", "a request with deflate"),
    Case("unknown_coding_in", compressed("br", TEXT), "C30", "no such coding"),
    Case("gzip_in_that_is_none", compressed("gzip", TEXT), "C30", "what is said to be gzip is not"),
    Case(
        "gzip_in_that_is_cut",
        compressed("gzip", gzip.compress(TEXT, mtime=0)[:-10]),
        "C30",
        "half of it",
    ),
    Case("unknown_coding_out", post(PATH, GOOD, headers={"Accept-Encoding": "br"}), "C30", "plain"),
    # -------------------------------------------------------------- classification
    Case(
        "classified",
        post(PATH, {**GOOD, "outputs": [{"name": "OUTPUT0", "parameters": {"classification": 1}}]}),
        "C55",
        "the best of two",
    ),
    Case(
        "classified_beyond_what_there_is",
        post(PATH, {**GOOD, "outputs": [{"name": "OUTPUT0", "parameters": {"classification": 9}}]}),
        "C55",
        "all of two",
    ),
    Case(
        "classified_in_batches",
        infer(
            "add_sub",
            *(tensor(n, "FP32", list(range(32)), [2, 16]) for n in ("INPUT0", "INPUT1")),
            outputs=[{"name": "OUTPUT0", "parameters": {"classification": 2}}],
        ),
        "C55",
        "the best two of each row",
    ),
    Case(
        "classified_as_binary",
        post(
            PATH,
            {
                **GOOD,
                "outputs": [
                    {"name": "OUTPUT0", "parameters": {"classification": 1, "binary_data": True}}
                ],
            },
        ),
        "C55",
        "classes are BYTES",
    ),
    Case(
        "classified_texts",
        coded("return [say(1)]", outputs=[{"name": "SAID", "parameters": {"classification": 1}}]),
        "C55",
        "BYTES have no order",
    ),
    Case(
        "classified_with_a_text",
        post(
            PATH, {**GOOD, "outputs": [{"name": "OUTPUT0", "parameters": {"classification": "1"}}]}
        ),
        "C55",
        "how many is a number",
    ),
    # ---------------------------------------------------------------- what is there
    Case("unknown_model", post("/v2/models/unknown/infer", GOOD), "C40", "no such model"),
    Case("unknown_version", post(f"{PATH[:-6]}/versions/9/infer", GOOD), "C41", "no such version"),
    Case("version_that_is_no_number", post(f"{PATH[:-6]}/versions/x/infer", GOOD), "C41", "a path"),
    Case("infer_with_get", get(PATH), "C08", "the wrong method"),
    # -------------------------------------------------------------------- generate
    Case("generate_without_a_body", post("/v2/models/identity_fp32/generate"), "C60", "no input"),
    Case("generate", post("/v2/models/identity_fp32/generate", {"INPUT0": [1, 2]}), "C62", "flat"),
    Case("generate_one", post("/v2/models/identity_fp32/generate", {"INPUT0": 1.5}), "C61", "bare"),
    Case(
        "generate_nothing", post("/v2/models/identity_fp32/generate", {"INPUT0": []}), "C61", "[]"
    ),
    Case(
        "generate_nested",
        post("/v2/models/identity_fp32/generate", {"INPUT0": [[1]]}),
        "C61",
        "two dimensions",
    ),
    Case(
        "generate_text",
        post("/v2/models/identity_fp32/generate", {"INPUT0": "x"}),
        "C61",
        "the wrong type",
    ),
    Case(
        "generate_null", post("/v2/models/identity_fp32/generate", {"INPUT0": None}), "C61", "null"
    ),
    Case("generate_array", post("/v2/models/identity_fp32/generate", []), "C60", "no object"),
    Case("generate_cut", post("/v2/models/identity_fp32/generate", "{"), "C60", "half a JSON"),
    Case(
        "generate_with_batches",
        post("/v2/models/add_sub/generate", {"INPUT0": list(range(16)), "INPUT1": [1] * 16}),
        "C61",
        "a batch of one",
    ),
    Case(
        "generate_of_another_shape",
        post("/v2/models/add_sub/generate", {"INPUT0": [1, 2], "INPUT1": [1] * 16}),
        "C61",
        "not a multiple",
    ),
    Case(
        "generate_with_parameters",
        post(
            "/v2/models/coded/generate",
            {
                "CODE": "return [say(sorted(json.loads(request.parameters()).items()))]",
                "a": 1,
                "parameters": {"b": "x", "c": True},
                "id": "i",
            },
        ),
        "C60",
        "what is no input is a parameter",
    ),
    Case(
        "generate_with_an_object",
        post("/v2/models/coded/generate", {"CODE": "return [say(1)]", "o": {"x": 1}}),
        "C60",
        "a parameter is one value",
    ),
    Case(
        "generate_with_a_number_as_id",
        post("/v2/models/coded/generate", {"CODE": "return [say(1)]", "id": 1}),
        "C60",
        "an id is a text",
    ),
    Case(
        "generate_with_gzip",
        Http(
            "POST",
            "/v2/models/identity_fp32/generate",
            gzip.compress(b'{"INPUT0":1}', mtime=0),
            {"Content-Encoding": "gzip"},
        ),
        "C66",
        "no compression here",
    ),
    Case("generate_with_get", get("/v2/models/identity_fp32/generate"), "C09", "the wrong method"),
)
