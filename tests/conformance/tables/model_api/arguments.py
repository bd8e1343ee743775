"""Arguments of the classes of pb_utils: odd types, None, and which mistake is told first."""

from __future__ import annotations

from tests.conformance.cases import Case, coded

REPOSITORY = "main"

#: The type alone where Triton's text is that of its C++ library.
_SAYS = (
    "try:\n    made = {made}\n    return [say({says})]\n"
    "except Exception as error:\n"
    "    text = str(error)\n"
    "    return [say(type(error).__name__, "
    "'' if type(error) is TypeError else text)]"
)
_BODY = "t = pb_utils.Tensor('X', np.zeros(1, 'f4'))\n"


def made(name: str, expression: str, says: str, why: str, row: str = "A50") -> Case:
    return Case(name, coded(_BODY + _SAYS.format(made=expression, says=says)), row, why)


def request(name: str, arguments: str, why: str, says: str = "made.correlation_id()") -> Case:
    defaults = "inputs=[t], requested_output_names=['Y'], model_name='m'"
    return made(
        f"request_{name}",
        f"pb_utils.InferenceRequest(**{{**dict({defaults}), {arguments}}})",
        says,
        why,
    )


def positional(name: str, arguments: str, why: str, says: str = "made.request_id()") -> Case:
    return made(f"request_{name}", f"pb_utils.InferenceRequest({arguments})", says, why)


CASES = (
    # -------------------------------------------------------------------- correlation id
    request("with_a_number_as_correlation", "'correlation_id': 7", "a number"),
    request("with_a_text_as_correlation", "'correlation_id': 'seven'", "a text"),
    request("with_no_text_as_correlation", "'correlation_id': ''", "an empty text"),
    request("with_none_as_correlation", "'correlation_id': None", "None"),
    request("with_a_float_as_correlation", "'correlation_id': 1.5", "a float"),
    request("with_true_as_correlation", "'correlation_id': True", "a boolean"),
    request("with_bytes_as_correlation", "'correlation_id': b'x'", "bytes"),
    request("with_a_list_as_correlation", "'correlation_id': [1]", "a list"),
    request("with_a_negative_correlation", "'correlation_id': -1", "below 0"),
    request("with_a_huge_correlation", "'correlation_id': 2 ** 64", "beyond 64 bits"),
    request("with_numpy_s_number_as_correlation", "'correlation_id': np.uint64(7)", "numpy's"),
    # ------------------------------------------------------------------------------ names
    request("whose_id_is_none", "'request_id': None", "a text", "made.request_id()"),
    request("whose_id_is_a_number", "'request_id': 1", "a text", "made.request_id()"),
    request("whose_id_is_bytes", "'request_id': b'x'", "bytes are texts", "made.request_id()"),
    request("whose_model_is_none", "'model_name': None", "a text", "1"),
    request("whose_model_is_empty", "'model_name': ''", "no name", "1"),
    request("whose_model_is_bytes", "'model_name': b'm'", "bytes are texts", "1"),
    request("whose_outputs_are_none", "'requested_output_names': None", "a list", "1"),
    request("whose_output_is_none", "'requested_output_names': [None]", "a text", "1"),
    request("whose_output_is_empty", "'requested_output_names': ['']", "no name", "1"),
    request("whose_output_is_a_number", "'requested_output_names': [1]", "a text", "1"),
    request(
        "whose_outputs_are_a_tuple",
        "'requested_output_names': ('Y', 'Z')",
        "a sequence",
        "sorted(made.requested_output_names())",
    ),
    request(
        "whose_outputs_are_a_set", "'requested_output_names': {'Y'}", "no sequence", "'accepted'"
    ),
    request("whose_outputs_are_a_text", "'requested_output_names': 'Y'", "one name", "'accepted'"),
    request(
        "whose_outputs_are_twice_the_same",
        "'requested_output_names': ['Y', 'Y']",
        "twice",
        "sorted(made.requested_output_names())",
    ),
    request("whose_outputs_are_no_more", "'requested_output_names': []", "none", "'accepted'"),
    # ----------------------------------------------------------------------------- inputs
    request("whose_inputs_are_none", "'inputs': None", "a list", "1"),
    request("whose_input_is_none", "'inputs': [None]", "no tensor", "1"),
    request("whose_input_is_an_array", "'inputs': [np.zeros(1)]", "no tensor", "1"),
    request("whose_inputs_are_a_tensor", "'inputs': t", "one tensor", "1"),
    request("whose_inputs_are_a_tuple", "'inputs': (t, t)", "a sequence", "len(made.inputs())"),
    request("whose_inputs_are_an_iterator", "'inputs': iter([t])", "no sequence", "'accepted'"),
    request("without_inputs", "'inputs': []", "none", "len(made.inputs())"),
    # ---------------------------------------------------------------------------- numbers
    request("whose_version_is_a_text", "'model_version': '1'", "a number", "1"),
    request("whose_version_is_none", "'model_version': None", "a number", "1"),
    request("whose_version_is_a_float", "'model_version': 1.0", "a number", "1"),
    request("whose_version_is_true", "'model_version': True", "a boolean is a number", "1"),
    request("whose_version_is_huge", "'model_version': 2 ** 63", "beyond 64 bits", "1"),
    request("whose_flags_are_negative", "'flags': -1", "below 0", "made.flags()"),
    request("whose_flags_are_huge", "'flags': 2 ** 32", "beyond 32 bits", "made.flags()"),
    request("whose_flags_are_a_float", "'flags': 1.0", "a number", "made.flags()"),
    request("whose_timeout_is_negative", "'timeout': -1", "below 0", "made.timeout()"),
    request("whose_timeout_is_none", "'timeout': None", "a number", "made.timeout()"),
    # ----------------------------------------------------------------------------- others
    request("whose_memory_is_none", "'preferred_memory': None", "None", "'accepted'"),
    request("whose_memory_is_a_number", "'preferred_memory': 1", "of another type", "1"),
    request("whose_trace_is_none", "'trace': None", "None", "'accepted'"),
    request("whose_trace_is_a_text", "'trace': 'x'", "of another type", "1"),
    request("whose_parameters_are_none", "'parameters': None", "none", "made.parameters()"),
    request("whose_parameters_are_empty", "'parameters': {}", "none", "made.parameters()"),
    request("whose_parameters_are_a_list", "'parameters': [1]", "no dictionary", "1"),
    request("whose_parameters_are_a_text", "'parameters': '{}'", "no dictionary", "1"),
    request("whose_parameter_is_a_float", "'parameters': {'a': 1.5}", "no such kind", "1"),
    request("whose_parameter_is_none", "'parameters': {'a': None}", "no such kind", "1"),
    request("whose_parameter_has_a_number_as_name", "'parameters': {1: 2}", "a text", "1"),
    request("with_an_argument_too_much", "'other': 1", "no such argument", "1"),
    # ------------------------------------------------------------- which mistake comes first
    request("wrong_in_correlation_and_input", "'correlation_id': 1.5, 'inputs': [None]", "?", "1"),
    request(
        "wrong_in_input_and_output", "'inputs': [None], 'requested_output_names': ['']", "?", "1"
    ),
    request(
        "wrong_in_output_and_model", "'requested_output_names': [''], 'model_name': ''", "?", "1"
    ),
    request("wrong_in_model_and_parameters", "'model_name': '', 'parameters': [1]", "?", "1"),
    request("wrong_in_input_and_parameters", "'inputs': [None], 'parameters': [1]", "?", "1"),
    request("wrong_in_correlation_and_parameters", "'correlation_id': 1.5, 'parameters': [1]", "?"),
    request("wrong_in_type_and_value", "'correlation_id': 1.5, 'flags': 'x'", "?"),
    positional("by_position", "'id', 7, [t], ['Y'], 'm', 1, 0, 5", "in Triton's order"),
    positional("by_position_alone", "'id', 7, [t], ['Y']", "the model is missing"),
    # ---------------------------------------------------------------------------- tensors
    made("tensor_named_none", "pb_utils.Tensor(None, np.zeros(1))", "made.name()", "a text", "A40"),
    made(
        "tensor_named_a_number", "pb_utils.Tensor(1, np.zeros(1))", "made.name()", "a text", "A40"
    ),
    made("tensor_named_bytes", "pb_utils.Tensor(b'x', np.zeros(1))", "made.name()", "?", "A40"),
    made("tensor_named_nothing", "pb_utils.Tensor('', np.zeros(1))", "made.name()", "?", "A40"),
    made("tensor_of_none", "pb_utils.Tensor('x', None)", "made.shape()", "an array", "A40"),
    made(
        "tensor_of_numpy_s_number",
        "pb_utils.Tensor('x', np.float32(1))",
        "made.shape()",
        "?",
        "A40",
    ),
    made(
        "tensor_of_no_dimension", "pb_utils.Tensor('x', np.array(1.0))", "made.shape()", "?", "A40"
    ),
    made(
        "tensor_of_complex", "pb_utils.Tensor('x', np.zeros(1, 'c8'))", "made.shape()", "?", "A40"
    ),
    made(
        "tensor_of_dates", "pb_utils.Tensor('x', np.zeros(1, 'M8[s]'))", "made.shape()", "?", "A40"
    ),
    made(
        "tensor_of_records",
        "pb_utils.Tensor('x', np.zeros(1, 'f4,i4'))",
        "made.shape()",
        "?",
        "A40",
    ),
    made(
        "tensor_of_other_endian",
        "pb_utils.Tensor('x', np.zeros(1, '>f4'))",
        "made.shape()",
        "?",
        "A40",
    ),
    made(
        "tensor_wrong_in_both", "pb_utils.Tensor('', np.zeros(1, 'c8'))", "made.shape()", "?", "A40"
    ),
    made(
        "tensor_of_a_matrix", "pb_utils.Tensor('x', np.matrix([[1.0]]))", "made.shape()", "?", "A40"
    ),
    made(
        "tensor_of_a_masked_array",
        "pb_utils.Tensor('x', np.ma.array([1.0], mask=[1]))",
        "made.shape()",
        "?",
        "A40",
    ),
    made(
        "tensor_of_texts_and_numbers",
        "pb_utils.Tensor('x', np.array(['a', 1], dtype='O'))",
        "made.shape()",
        "?",
        "A40",
    ),
    # --------------------------------------------------------------------------- responses
    made("response_of_none", "pb_utils.InferenceResponse(None)", "made.has_error()", "?", "A70"),
    made("response_of_nothing", "pb_utils.InferenceResponse([])", "made.has_error()", "?", "A70"),
    made("response_of_no_argument", "pb_utils.InferenceResponse()", "made.has_error()", "?", "A70"),
    made(
        "response_of_a_none", "pb_utils.InferenceResponse([None])", "made.has_error()", "?", "A70"
    ),
    made("response_of_a_tuple", "pb_utils.InferenceResponse((t,))", "made.has_error()", "?", "A70"),
    made(
        "response_with_a_text_as_error",
        "pb_utils.InferenceResponse(error='x')",
        "made.has_error()",
        "?",
        "A70",
    ),
    made(
        "response_with_none_as_error",
        "pb_utils.InferenceResponse([t], None)",
        "made.has_error()",
        "?",
        "A70",
    ),
    made("error_of_none", "pb_utils.TritonError(None)", "made.message()", "a text", "A75"),
    made("error_of_bytes", "pb_utils.TritonError(b'x')", "made.message()", "?", "A75"),
    made("error_of_a_number", "pb_utils.TritonError(5)", "made.message()", "a text", "A75"),
    made("error_of_nothing", "pb_utils.TritonError()", "made.message()", "a text", "A75"),
    made("error_of_no_letters", "pb_utils.TritonError('')", "made.message()", "?", "A75"),
    made("error_with_a_number", "pb_utils.TritonError('x', 3)", "made.message()", "?", "A75"),
    made("error_with_none", "pb_utils.TritonError('x', None)", "made.message()", "?", "A75"),
    made(
        "error_with_a_code",
        "pb_utils.TritonError('x', pb_utils.TritonError.NOT_FOUND)",
        "str(made.code()), int(made.code())",
        "?",
        "A75",
    ),
    # --------------------------------------------------------------------- by name, of none
    made(
        "input_named_none",
        "pb_utils.get_input_tensor_by_name(request, None)",
        "made",
        "no such name",
        "A05",
    ),
    made(
        "input_of_none",
        "pb_utils.get_input_tensor_by_name(None, 'X')",
        "made",
        "no request",
        "A05",
    ),
    made(
        "output_of_a_request",
        "pb_utils.get_output_tensor_by_name(request, 'X')",
        "made",
        "no response",
        "A05",
    ),
    made("type_of_none", "pb_utils.triton_string_to_numpy(None)", "made", "no type", "A01"),
    made(
        "type_of_a_small_name", "pb_utils.triton_string_to_numpy('type_fp32')", "made", "?", "A01"
    ),
)
