"""Cases between a client's tensors and the model's: classes, reshapes, raw bodies, headers."""

from __future__ import annotations

from typing import Any

from tests.conformance.cases import (
    Case,
    Http,
    Rpc,
    called,
    code,
    coded,
    elements,
    infer,
    message,
    tensor,
)
from tests.conformance.repositories import MODELS as TEST_MODELS
from tests.conformance.repositories import Written

REPOSITORY = "shapes"

_CODED = (TEST_MODELS / "coded" / "1" / "model.py").read_text("utf-8")
_ECHO = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        inputs = [request.inputs()[0] for request in requests]
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("Y", x.as_numpy())]) for x in inputs
        ]
"""


def _io(kind: str, name: str, datatype: str, dims: str, more: str = "") -> str:
    return f'{kind} {{ name: "{name}" data_type: TYPE_{datatype} dims: [ {dims} ] {more} }}\n'


def _model(name: str, config: str, code: str = _CODED, **files: str) -> Written:
    group = "instance_group [ { count: 1 kind: KIND_CPU } ]\n"
    return Written(name, f'backend: "python"\n{config}{group}', {"1/model.py": code, **files})


def _echo(name: str, datatype: str, dims: str, more: str = "") -> Written:
    config = _io("input", "X", datatype, dims) + _io("output", "Y", datatype, dims)
    return _model(name, config + more, _ECHO)


_CODE = _io("input", "CODE", "STRING", "1")
_LABELS = 'label_filename: "labels.txt"'
_CLASSES = "".join(
    (
        _CODE,
        _io("output", "F", "FP32", "-1", _LABELS),
        _io("output", "M", "FP32", "-1, -1", _LABELS),
        *(
            _io("output", name, datatype, "-1")
            for name, datatype in (
                ("D", "FP64"),
                ("I", "INT32"),
                ("U", "UINT64"),
                ("T", "INT8"),
                ("O", "UINT8"),
                ("B", "BOOL"),
                ("H", "FP16"),
                ("SAID", "STRING"),
            )
        ),
    )
)
_SHAPED = "".join(
    (
        _CODE,
        _io("input", "X", "FP32", "2, 3", "reshape { shape: [ 6 ] }"),
        _io("input", "W", "FP32", "-1, 1", "reshape { shape: [ -1 ] } optional: true"),
        _io("output", "Y", "FP32", "3, 2", "reshape { shape: [ 6 ] }"),
        _io("output", "V", "FP32", "1, -1", "reshape { shape: [ -1 ] }"),
        _io("output", "SAID", "STRING", "-1"),
    )
)
_SHAPED_BATCHED = "".join(
    (
        "max_batch_size: 4\n",
        _CODE,
        _io("input", "X", "FP32", "1", "reshape { shape: [ ] }"),
        _io("output", "Y", "FP32", "1", "reshape { shape: [ ] }"),
        _io("output", "SAID", "STRING", "-1"),
    )
)
#: The second label is empty, the third has spaces; there are fewer than elements.
_FILES = {"labels.txt": "cat\n\n big  dog \nbird"}
MODELS = (
    _model("classes", _CLASSES, **_FILES),
    _model("classes_batched", f"max_batch_size: 4\n{_CLASSES}", **_FILES),
    _model("shaped", _SHAPED),
    _model("shaped_batched", _SHAPED_BATCHED),
    _echo("rows", "FP32", "3, -1"),
    _echo("rows_batched", "FP32", "3, -1", "max_batch_size: 4\n"),
    _echo("fixed", "FP32", "2"),
    _echo("free", "FP32", "-1, -1"),
    _echo("texts", "STRING", "2"),
    _echo("text", "STRING", "1"),
)
OPTIONS = (
    "--model-control-mode=explicit",
    "--load-model=*",
    "--http-header-forward-pattern=x-fwd.*|timeout|triton_.*",
    "--grpc-header-forward-pattern=x-fwd.*|timeout|triton_.*",
)
OUTPUT = (
    "return [pb_utils.InferenceResponse([pb_utils.Tensor('{}', np.array({}, np.{}))]) "
    "for _ in requests]"
)


def classified(name: str, values: str, kind: str, count: Any, **more: Any) -> Http:
    """The classes of one output of these values."""
    outputs = [{"name": name, "parameters": {"classification": count, **more}}]
    return coded(OUTPUT.format(name, values, kind), model="classes", outputs=outputs)


def in_batches(values: str, count: int) -> Http:
    rows = tensor("CODE", "BYTES", [OUTPUT.format("F", values, "float32")] * 2, [2, 1])
    outputs = [{"name": "F", "parameters": {"classification": count}}]
    return infer("classes_batched", rows, outputs=outputs)


def over_grpc(name: str, values: str, kind: str, count: str) -> Rpc:
    parameters = f'parameters {{ key: "classification" value {{ {count} }} }}'
    more = f'outputs {{ name: "{name}" {parameters} }}'
    return called(OUTPUT.format(name, values, kind), model="classes", more=more)


def reshaped(shape: list[int], text: str, model: str = "shaped") -> Http:
    count = 1
    for dim in shape:
        count *= dim
    code_tensor = (
        tensor("CODE", "BYTES", [text], [1, 1]) if model == "shaped_batched" else code(text)
    )
    return infer(model, code_tensor, tensor("X", "FP32", list(range(count)), shape))


def raw(model: str, body: bytes) -> Http:
    return Http("POST", f"/v2/models/{model}/infer", body, {"Inference-Header-Content-Length": "0"})


SEEN = "[(t.name(), t.shape(), t.as_numpy().shape) for t in request.inputs() if t.name() != 'CODE']"
Y = "return [pb_utils.InferenceResponse([pb_utils.Tensor('Y', np.zeros({}, np.float32))])]"
V = "return [pb_utils.InferenceResponse([pb_utils.Tensor('V', np.zeros({}, np.float32))])]"

CASES = (
    Case(
        "classes_with_labels",
        classified("F", "[.1, .5, .25, .5, 0, -1]", "float32", 6),
        "C55",
        "the largest first, of equals the first; labels where there are some",
    ),
    Case(
        "classes_of_nan",
        classified("F", "[1, float('nan'), 2, float('inf'), -float('inf')]", "float32", 5),
        "C55",
        "what is not finite",
    ),
    Case("classes_of_large_numbers", classified("F", "[1e30, 1e-9]", "float32", 2), "C55", "%f"),
    Case("classes_of_doubles", classified("D", "[1.23456789, 2]", "float64", 2), "C55", "%f"),
    Case("classes_of_integers", classified("I", "[-5, 7, 7]", "int32", 3), "C55", "%d"),
    Case("classes_of_unsigned", classified("U", "[1, 2**64 - 1]", "uint64", 2), "C55", "64 bits"),
    Case("classes_of_small", classified("T", "[-1, 100, 65]", "int8", 3), "C55", "8 bits"),
    Case("classes_of_bytes", classified("O", "[1, 200, 65]", "uint8", 3), "C55", "8 bits"),
    Case("classes_of_booleans", classified("B", "[1, 0, 1]", "bool_", 3), "C55", "true is more"),
    Case("classes_of_halves", classified("H", "[1, 2]", "float16", 2), "C55", "no such class"),
    Case("classes_of_nothing", classified("F", "[]", "float32", 2), "C55", "no elements"),
    Case("classes_of_a_matrix", classified("M", "[[1, 2], [4, 3]]", "float32", 3), "C55", "flat"),
    Case("classes_of_batches", in_batches("[[1, 3, 2]]", 2), "C55", "each row for itself"),
    Case("classes_of_empty_batches", in_batches("[[]]", 2), "C55", "rows without elements"),
    Case("no_classes", classified("F", "[1, 2]", "float32", 0), "C55", "the output itself"),
    Case("classes_below_zero", classified("F", "[1, 2]", "float32", -1), "C55", "a number"),
    Case("very_many_classes", classified("F", "[1, 2]", "float32", 2**31), "C55", "32 bits"),
    Case("half_a_class", classified("F", "[1, 2]", "float32", 1.5), "C55", "a number"),
    Case(
        "classes_in_shared_memory",
        classified("F", "[1, 2]", "float32", 1, shared_memory_region="r"),
        "C55",
        "one or the other",
    ),
    Case(
        "classes_over_grpc",
        over_grpc("F", "[1, 3, 2]", "float32", "int64_param: 2"),
        "C55",
        "raw BYTES",
    ),
    Case(
        "no_classes_over_grpc",
        over_grpc("F", "[1, 2]", "float32", "int64_param: 0"),
        "C55",
        "more than zero",
    ),
    Case(
        "classes_below_zero_over_grpc",
        over_grpc("F", "[1, 2]", "float32", "int64_param: -1"),
        "C55",
        "more than zero",
    ),
    Case(
        "very_many_classes_over_grpc",
        over_grpc("F", "[1, 2]", "float32", "int64_param: 4294967296"),
        "C55",
        "32 bits",
    ),
    Case(
        "classes_by_a_text_over_grpc",
        over_grpc("F", "[1, 2]", "float32", 'string_param: "1"'),
        "C55",
        "a number",
    ),
    Case(
        "classes_of_halves_over_grpc",
        over_grpc("H", "[1, 2]", "float16", "int64_param: 1"),
        "C55",
        "no such class",
    ),
    # --------------------------------------------------------------------- reshape
    Case(
        "input_reshaped",
        reshaped([2, 3], f"return [say({SEEN})]"),
        "E31",
        "the model sees another shape",
    ),
    Case(
        "input_shaped_as_the_model_sees_it",
        reshaped([6], f"return [say({SEEN})]"),
        "E31",
        "clients send what dims says",
    ),
    Case(
        "input_of_any_length_reshaped",
        infer(
            "shaped",
            code(f"return [say(sorted({SEEN}))]"),
            tensor("X", "FP32", list(range(6)), [2, 3]),
            tensor("W", "FP32", [1, 2], [2, 1]),
        ),
        "E31",
        "a variable dimension goes along",
    ),
    Case(
        "input_reshaped_to_nothing",
        reshaped([1, 1], f"return [say({SEEN})]", "shaped_batched"),
        "E31",
        "the batch dimension alone is left",
    ),
    Case("output_reshaped", reshaped([2, 3], Y.format(6)), "E31", "clients see what dims says"),
    Case(
        "output_of_any_length_reshaped", reshaped([2, 3], V.format(5)), "E31", "variable dimension"
    ),
    Case(
        "output_shaped_as_clients_see_it",
        reshaped([2, 3], Y.format((3, 2))),
        "E31",
        "not what reshape says",
    ),
    Case("output_that_fits_no_shape", reshaped([2, 3], Y.format(5)), "E31", "neither"),
    Case(
        "output_reshaped_from_nothing",
        reshaped([1, 1], Y.format(1), "shaped_batched"),
        "E31",
        "the batch dimension comes first",
    ),
    Case(
        "output_reshaped_over_grpc",
        Rpc(
            "ModelInfer",
            message(
                "shaped",
                ("CODE", "BYTES", [1], elements(Y.format(6))),
                ("X", "FP32", [2, 3], bytes(24)),
            ),
        ),
        "E31",
        "the same",
    ),
    # -------------------------------------------------------------------- metadata
    Case(
        "header_as_a_parameter",
        coded(
            "return [say(sorted(json.loads(request.parameters()).items()))]", model="classes"
        )._replace(headers={"X-Fwd-One": "1", "x-FWD-two": "a,b", "Other-X-Fwd": "3", "Y": "4"}),
        "C32",
        "a header that matches goes to the model",
    ),
    Case(
        "header_that_is_reserved",
        coded("return [say(1)]", model="classes")._replace(headers={"Timeout": "1"}),
        "C32",
        "some names mean something",
    ),
    Case(
        "header_of_triton_s_own",
        coded("return [say(1)]", model="classes")._replace(headers={"triton_x-fwd": "1"}),
        "C32",
        "some names mean something",
    ),
    Case(
        "metadata_as_a_parameter_over_grpc",
        called(
            "return [say(sorted(json.loads(request.parameters()).items()))]", model="classes"
        )._replace(metadata={"x-fwd-one": "1", "other-x-fwd": "3", "y": "4"}),
        "D45",
        "metadata that matches goes to the model",
    ),
    Case(
        "metadata_that_is_reserved_over_grpc",
        called("return [say(1)]", model="classes")._replace(metadata={"timeout": "1"}),
        "D45",
        "some names mean something",
    ),
    Case(
        "metadata_of_triton_s_own_over_grpc",
        called("return [say(1)]", model="classes")._replace(metadata={"triton_x-fwd": "1"}),
        "D45",
        "some names mean something",
    ),
    # -------------------------------------------------------------------- raw binary
    Case("raw_rows", raw("rows", bytes(24)), "C24", "the free dimension is deduced"),
    Case("raw_rows_and_a_half", raw("rows", bytes(20)), "C24", "a whole number of rows"),
    Case("raw_of_a_fixed_shape", raw("fixed", bytes(8)), "C24", "exactly that"),
    Case("raw_of_another_size", raw("fixed", bytes(12)), "C24", "exactly that"),
    Case("raw_with_two_free", raw("free", bytes(12)), "C24", "one can be deduced"),
    Case("raw_text", raw("text", b"abc"), "C24", "one element"),
    Case("raw_texts", raw("texts", b"abc"), "C24", "one element"),
    Case("raw_in_batches", raw("rows_batched", bytes(24)), "C24", "a batch of one"),
)
