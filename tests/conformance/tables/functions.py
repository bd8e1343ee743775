"""The rest of `triton_python_backend_utils`: helpers, constants, the codec of BYTES."""

from __future__ import annotations

from tests.conformance.cases import Case, coded, said

REPOSITORY = "main"
CONFIG = "json.loads(self.args['model_config'])"

CASES = (
    Case(
        "names_of_types",
        said("*sorted((k, np.dtype(v).str) for k, v in pb_utils.TRITON_STRING_TO_NUMPY.items())"),
        "A01",
        "the whole table",
    ),
    Case(
        "name_of_a_type",
        said("np.dtype(pb_utils.triton_string_to_numpy('TYPE_FP16')).str"),
        "A01",
        "a name of the configuration",
    ),
    Case(
        "name_of_bf16",
        coded("pb_utils.triton_string_to_numpy('TYPE_BF16')"),
        "A01",
        "numpy does not know it",
    ),
    Case(
        "name_of_a_type_of_the_protocol",
        coded("pb_utils.triton_string_to_numpy('FP32')"),
        "A01",
        "only names of the configuration",
    ),
    Case(
        "numbers_to_types",
        said("*[np.dtype(t).str for t in map(pb_utils.triton_to_numpy_type, range(1, 14))]"),
        "A02",
        "every number",
    ),
    Case(
        "number_of_no_type",
        said("pb_utils.triton_to_numpy_type(99)"),
        "A02",
        "a number that is none",
    ),
    Case(
        "types_to_numbers",
        said(
            "*[pb_utils.numpy_to_triton_type(t) for t in (bool, np.uint8, np.uint16, np.uint32, "
            "np.uint64, np.int8, np.int16, np.int32, np.int64, np.float16, np.float32, "
            "np.float64, np.object_, np.bytes_)]"
        ),
        "A02",
        "every type",
    ),
    Case(
        "type_of_no_number",
        said("pb_utils.numpy_to_triton_type(np.complex64)"),
        "A02",
        "a type that Triton does not have",
    ),
    Case(
        "serialized_bytes",
        said("pb_utils.serialize_byte_tensor(np.array([b'ab', 'c', 7], dtype='O'))"),
        "A03",
        "length and data of each element",
    ),
    Case(
        "serialized_nothing",
        said("pb_utils.serialize_byte_tensor(np.array([], dtype='O'))"),
        "A03",
        "an empty array",
    ),
    Case(
        "serialized_numbers",
        said("pb_utils.serialize_byte_tensor(np.ones(2))"),
        "A03",
        "an array of numbers",
    ),
    Case(
        "deserialized_bytes",
        said(
            "(lambda a: (a.dtype.str, a.shape, a.tolist()))"
            "(pb_utils.deserialize_bytes_tensor(b'\\2\\0\\0\\0ab\\0\\0\\0\\0'))"
        ),
        "A04",
        "an array of bytes",
    ),
    Case(
        "deserialized_half_a_length",
        coded("pb_utils.deserialize_bytes_tensor(b'\\2\\0')"),
        "A04",
        "too few bytes for a length",
    ),
    Case(
        "input_by_a_name_that_is_not_there",
        said("pb_utils.get_input_tensor_by_name(request, 'X')"),
        "A05",
        "None, which is how optional inputs are found",
    ),
    Case(
        "output_by_name",
        said(
            "pb_utils.get_output_tensor_by_name(say(1), 'SAID').name(), "
            "pb_utils.get_output_tensor_by_name(say(1), 'Y')"
        ),
        "A05",
        "a tensor or None",
    ),
    Case(
        "config_of_an_input",
        said(
            f"pb_utils.get_input_config_by_name({CONFIG}, 'X'), "
            f"pb_utils.get_input_config_by_name({CONFIG}, 'Z')"
        ),
        "A06",
        "a dictionary or None",
    ),
    Case(
        "config_of_an_output",
        said(
            f"pb_utils.get_output_config_by_name({CONFIG}, 'Y'), "
            f"pb_utils.get_output_config_by_name({CONFIG}, 'Z')"
        ),
        "A06",
        "a dictionary or None",
    ),
    Case(
        "decoupled_in_a_config",
        said(
            f"pb_utils.using_decoupled_model_transaction_policy({CONFIG}), "
            "pb_utils.using_decoupled_model_transaction_policy("
            "{'model_transaction_policy': {'decoupled': True}})"
        ),
        "A07",
        "not this one",
    ),
    Case(
        "constants",
        said(
            "*[getattr(pb_utils, name) for name in "
            "('TRITONSERVER_REQUEST_FLAG_SEQUENCE_START', "
            "'TRITONSERVER_REQUEST_FLAG_SEQUENCE_END', "
            "'TRITONSERVER_RESPONSE_COMPLETE_FINAL', 'TRITONSERVER_REQUEST_RELEASE_ALL', "
            "'TRITONSERVER_REQUEST_RELEASE_RESCHEDULE')]"
        ),
        "A08",
        "plain numbers",
    ),
    Case(
        "attribute_that_is_not_there",
        coded("pb_utils.input_string_to_numpy"),
        "A10",
        "AttributeError, so that models can tell",
    ),
    Case(
        "where_modules_come_from",
        said("__import__('c_python_backend_utils').TritonError is pb_utils.TritonError"),
        "A10",
        "both modules hold the same classes",
    ),
    Case(
        "codes_of_errors",
        said(
            "*[int(getattr(pb_utils.TritonError, name)) for name in ('UNKNOWN', 'INTERNAL', "
            "'NOT_FOUND', 'INVALID_ARG', 'UNAVAILABLE', 'UNSUPPORTED', 'ALREADY_EXISTS', "
            "'CANCELLED')]"
        ),
        "A75",
        "their numbers",
    ),
    Case(
        "ancestors_of_the_exception",
        said("pb_utils.TritonModelException.__mro__[1:]"),
        "A76",
        "an Exception",
    ),
)
