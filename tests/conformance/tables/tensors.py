"""Tensors as models see and make them: data types, sizes, optional ones, what is refused."""

from __future__ import annotations

import numpy as np

from tests.conformance.cases import (
    Case,
    binary,
    call,
    coded,
    elements,
    infer,
    post,
    said,
    tensor,
)

REPOSITORY = "main"


def raw(dtype: str, *values: float) -> bytes:
    return np.array(values, dtype).tobytes()


CASES = (
    # ------------------------------------------------------------- there and back
    Case(
        "integers_in_json",
        infer(
            "all_types",
            tensor("UINT8", "UINT8", [0, 255]),
            tensor("UINT16", "UINT16", [65535]),
            tensor("UINT32", "UINT32", [4294967295]),
            tensor("UINT64", "UINT64", [18446744073709551615]),
            tensor("INT8", "INT8", [-128]),
            tensor("INT16", "INT16", [-32768]),
            tensor("INT32", "INT32", [-2147483648]),
            tensor("INT64", "INT64", [-9223372036854775808, 9223372036854775807]),
        ),
        "A42",
        "each integer at the ends of its range",
    ),
    Case(
        "floats_in_json",
        infer(
            "all_types",
            tensor("FP32", "FP32", [0.1, -1e38, 3]),
            tensor("FP64", "FP64", [0.1, 1e300]),
            outputs=[{"name": "FP64_BACK"}, {"name": "SEEN"}],
        ),
        "A42",
        "floats keep the digits of their width",
    ),
    Case(
        "fp32_digits_in_json",
        infer(
            "all_types",
            tensor("FP32", "FP32", [0.1, 1e20, 16777216, 1e-7]),
            outputs=[{"name": "FP32_BACK"}],
        ),
        "C27",
        "how many digits an FP32 has in JSON",
    ),
    Case(
        "booleans_in_json",
        infer("all_types", tensor("BOOL", "BOOL", [True, False])),
        "A42",
        "true and false become numpy's",
    ),
    Case(
        "strings_in_json",
        infer("all_types", tensor("STRING", "BYTES", ["", "grün", "a\nb", '"'])),
        "A42",
        "a model sees UTF-8 bytes, a client its text again",
    ),
    Case(
        "all_types_in_binary",
        binary(
            "all_types",
            ("BOOL", "BOOL", [2], b"\x01\x00"),
            ("UINT8", "UINT8", [2], raw("u1", 0, 255)),
            ("UINT16", "UINT16", [1], raw("<u2", 513)),
            ("UINT32", "UINT32", [1], raw("<u4", 7)),
            ("UINT64", "UINT64", [1], raw("<u8", 7)),
            ("INT8", "INT8", [1], raw("i1", -1)),
            ("INT16", "INT16", [1], raw("<i2", -2)),
            ("INT32", "INT32", [1], raw("<i4", -3)),
            ("INT64", "INT64", [1], raw("<i8", -4)),
            ("FP16", "FP16", [2], raw("<f2", 0.5, -2)),
            ("FP32", "FP32", [1], raw("<f4", 0.25)),
            ("FP64", "FP64", [1], raw("<f8", 0.125)),
            ("STRING", "BYTES", [2], elements(b"\xff\x00", "")),
            parameters={"binary_data_output": True},
        ),
        "A42",
        "bytes in, the same bytes out",
    ),
    Case(
        "all_types_over_grpc",
        call(
            "all_types",
            ("FP16", "FP16", [2], raw("<f2", 0.5, -2)),
            ("UINT64", "UINT64", [1], raw("<u8", 7)),
            ("STRING", "BYTES", [2], elements(b"\xff\x00", "")),
            ("BOOL", "BOOL", [1], b"\x01"),
        ),
        "D22",
        "raw contents in the order in which the model made the outputs",
    ),
    Case(
        "no_input_where_all_are_optional",
        infer("all_types"),
        "A05",
        "an optional input that is absent is no tensor",
    ),
    Case(
        "nan_and_infinity_in_json",
        post(
            "/v2/models/all_types/infer",
            '{"inputs":[{"name":"FP32","shape":[2],"datatype":"FP32","data":[NaN,Infinity]}]}',
        ),
        "C27",
        "numbers that JSON does not know, from the client",
    ),
    Case(
        "nan_from_the_model",
        coded("return [pb_utils.InferenceResponse(tensors(np.array([np.nan, -np.inf], 'f4')))]"),
        "C27",
        "numbers that JSON does not know, from the model",
    ),
    # --------------------------------------------------------------------- sizes
    Case(
        "zero_size_in_json",
        infer("all_types", tensor("FP32", "FP32", [])),
        "A48",
        "a dimension of 0 there and back",
    ),
    Case(
        "zero_size_in_binary",
        binary(
            "all_types",
            ("FP32", "FP32", [0], b""),
            ("STRING", "BYTES", [0], b""),
            parameters={"binary_data_output": True},
        ),
        "A48",
        "no bytes, and yet a tensor",
    ),
    Case(
        "zero_size_over_grpc",
        call("all_types", ("STRING", "BYTES", [0], b""), ("FP32", "FP32", [0], b"")),
        "A48",
        "an empty entry for each empty tensor",
    ),
    Case(
        "zero_size_from_the_model",
        coded("return [pb_utils.InferenceResponse(tensors(np.zeros([3, 0], 'f4')))]"),
        "A48",
        "zero elements in two dimensions",
    ),
    Case(
        "scalar_from_the_model",
        coded("return [pb_utils.InferenceResponse(tensors(np.float32(1.5).reshape(())))]"),
        "A41",
        "an array without dimensions",
    ),
    Case(
        "dimensions_that_the_config_does_not_have",
        coded("return [pb_utils.InferenceResponse(tensors(np.ones([1, 2, 2], 'f4')))]"),
        "A40",
        "outputs are not checked against the configuration",
    ),
    Case(
        "type_that_the_config_does_not_have",
        coded("return [pb_utils.InferenceResponse([pb_utils.Tensor('Y', np.ones(2, 'i8'))])]"),
        "A40",
        "neither are their types",
    ),
    Case(
        "output_that_the_config_does_not_have",
        coded("return [pb_utils.InferenceResponse([pb_utils.Tensor('NEW', np.ones(2, 'i8'))])]"),
        "A40",
        "an output of a name that nobody knows",
    ),
    Case(
        "same_output_twice",
        coded("return [pb_utils.InferenceResponse(tensors(np.ones(1, 'f4'), np.zeros(2, 'f4')))]"),
        "A70",
        "two tensors of one name",
    ),
    # -------------------------------------------------------------------- making
    Case(
        "strided_array",
        coded("return [pb_utils.InferenceResponse(tensors(np.arange(6, dtype='f4')[::2]))]"),
        "A40",
        "an array that is not contiguous is copied",
    ),
    Case(
        "transposed_array",
        coded(
            "return [pb_utils.InferenceResponse(tensors(np.arange(6, dtype='f4').reshape(2, 3).T))]"
        ),
        "A40",
        "the order of a transposed array is C's",
    ),
    Case(
        "array_of_fixed_bytes",
        coded(
            "array = np.array([b'ab', b'c'])\n"
            "return [pb_utils.InferenceResponse([pb_utils.Tensor('SAID', array)])]"
        ),
        "A40",
        "dtype S is BYTES",
    ),
    Case(
        "array_of_objects",
        coded(
            "array = np.array([b'a', 'ü', 7, None], dtype=np.object_)\n"
            "return [pb_utils.InferenceResponse([pb_utils.Tensor('SAID', array)])]"
        ),
        "A03",
        "elements that are not bytes become their str()",
    ),
    Case(
        "array_of_unicode",
        coded("pb_utils.Tensor('SAID', np.array(['ab']))"),
        "A40",
        "dtype U is not supported",
    ),
    Case(
        "array_of_complex",
        coded("pb_utils.Tensor('Y', np.zeros(1, 'complex64'))"),
        "A40",
        "a dtype that Triton does not have",
    ),
    Case(
        "tensor_without_a_name",
        coded("pb_utils.Tensor('', np.zeros(1))"),
        "A40",
        "an empty name",
    ),
    Case(
        "tensor_of_a_list",
        coded("pb_utils.Tensor('Y', [1.0])"),
        "A40",
        "a list is no array",
    ),
    Case(
        "tensor_without_arguments",
        coded("pb_utils.Tensor()"),
        "A40",
        "no constructor takes nothing",
    ),
    Case(
        "what_a_tensor_says",
        said(
            "*sorted((t.name(), t.shape(), t.is_cpu()) for t in request.inputs())",
            tensor("X", "FP32", [1, 2, 3]),
        ),
        "A41",
        "name, shape and place",
    ),
    Case(
        "number_of_a_type",
        said("int(request.inputs()[0].triton_dtype())"),
        "A41",
        "Triton's number of a data type",
    ),
    Case(
        "big_endian_array",
        coded("return [pb_utils.InferenceResponse(tensors(np.array([1], '>f4').astype('f4')))]"),
        "A40",
        "an array that was turned around",
    ),
    # ------------------------------------------------------------------- dlpack
    Case(
        "dlpack_there_and_back",
        coded(
            "other = pb_utils.Tensor.from_dlpack('Y', np.arange(3, dtype='f4'))\n"
            "return [pb_utils.InferenceResponse([other])]"
        ),
        "A44",
        "an array given through DLPack",
    ),
    Case(
        "dlpack_capsule",
        coded(
            "made = pb_utils.Tensor('Y', np.ones(2, 'f4'))\n"
            "again = pb_utils.Tensor.from_dlpack('Y', made.to_dlpack())\n"
            "return [pb_utils.InferenceResponse([again])]"
        ),
        "A44",
        "a capsule of our own",
    ),
    Case(
        "dlpack_device",
        said("tuple(int(v) for v in pb_utils.Tensor('Y', np.ones(2, 'f4')).__dlpack_device__())"),
        "A45",
        "memory of the CPU",
    ),
    Case(
        "dlpack_of_something_else",
        coded("pb_utils.Tensor.from_dlpack('Y', 'text')"),
        "A44",
        "neither a capsule nor an object that makes one",
    ),
    Case(
        "dlpack_not_contiguous",
        coded("pb_utils.Tensor.from_dlpack('Y', np.ones([4, 4], 'f4')[:, ::2])"),
        "A44",
        "a view with gaps",
    ),
    Case(
        "dlpack_of_bytes",
        coded("pb_utils.Tensor('SAID', np.array([b'a'], dtype=np.object_)).to_dlpack()"),
        "A44",
        "BYTES have no DLPack",
    ),
    Case(
        "dlpack_without_a_name",
        coded("pb_utils.Tensor.from_dlpack('', np.ones(1, 'f4'))"),
        "A44",
        "an empty name, given through DLPack",
    ),
)
