"""Return values of execute, right and wrong, and what a client gets of each."""

from __future__ import annotations

from tests.conformance.cases import Case, called, coded, tensor
from tests.conformance.cases import said as said_by

REPOSITORY = "main"
_CODES = (
    "UNKNOWN INTERNAL NOT_FOUND INVALID_ARG UNAVAILABLE UNSUPPORTED ALREADY_EXISTS CANCELLED"
).split()


def failing(code: str) -> str:
    error = f"pb_utils.TritonError('on purpose', pb_utils.TritonError.{code})"
    return f"return [pb_utils.InferenceResponse(error={error})]"


BOTH = "return [pb_utils.InferenceResponse(tensors(np.ones(1, 'f4'), np.array([b'x'], dtype='O')))]"
X = tensor("X", "FP32", [1.0])

CASES = (
    # ------------------------------------------------------------------- responses
    Case("both_outputs", coded(BOTH), "A70", "in the order in which the model made them"),
    Case(
        "one_output_of_two_is_asked_for",
        coded(BOTH, outputs=[{"name": "SAID"}]),
        "A71",
        "the other is taken away",
    ),
    Case(
        "outputs_asked_for_in_another_order",
        coded(BOTH, outputs=[{"name": "SAID"}, {"name": "Y"}]),
        "A71",
        "the order of the answer is the model's",
    ),
    Case(
        "output_asked_for_that_is_not_made",
        coded("return [say(1)]", outputs=[{"name": "Y"}]),
        "A71",
        "nothing is left",
    ),
    Case(
        "one_output_of_two_over_grpc",
        called(BOTH, more='outputs { name: "SAID" }'),
        "A71",
        "the same over gRPC",
    ),
    Case(
        "response_without_tensors",
        coded("return [pb_utils.InferenceResponse([])]"),
        "A70",
        "a response may be empty",
    ),
    Case(
        "response_without_arguments",
        coded("return [pb_utils.InferenceResponse()]"),
        "A70",
        "the same without saying so",
    ),
    Case(
        "response_without_tensors_over_grpc",
        called("return [pb_utils.InferenceResponse([])]"),
        "A70",
        "the same over gRPC",
    ),
    Case(
        "response_with_none_as_tensor",
        coded("return [pb_utils.InferenceResponse([None])]"),
        "A70",
        "None is no tensor",
    ),
    Case(
        "response_with_an_array_as_tensor",
        coded("return [pb_utils.InferenceResponse([np.ones(1)])]"),
        "A70",
        "an array is no tensor either",
    ),
    Case(
        "response_parameters",
        coded(
            "return [pb_utils.InferenceResponse(tensors(np.ones(1, 'f4')), "
            "parameters={'i': 1, 'b': True, 's': 'x', 'n': -1})]"
        ),
        "A77",
        "each kind keeps its type",
    ),
    Case(
        "response_parameters_over_grpc",
        called("return [pb_utils.InferenceResponse([], parameters={'i': 1, 'b': True, 's': 'x'})]"),
        "A77",
        "the same over gRPC",
    ),
    Case(
        "response_parameter_that_is_a_float",
        coded("return [pb_utils.InferenceResponse([], parameters={'f': 0.5})]"),
        "A77",
        "floats are refused",
    ),
    Case(
        "what_a_response_says",
        said_by(
            "(lambda r: ([t.name() for t in r.output_tensors()], r.has_error(), r.error()))"
            "(pb_utils.InferenceResponse(tensors(np.ones(1, 'f4'))))"
        ),
        "A70",
        "the accessors of a good response",
    ),
    Case(
        "what_a_failed_response_says",
        said_by(
            "(lambda r: (r.has_error(), r.error().message(), int(r.error().code()), "
            "len(r.output_tensors())))(pb_utils.InferenceResponse(tensors(np.ones(1, 'f4')), "
            "pb_utils.TritonError('no', pb_utils.TritonError.NOT_FOUND)))"
        ),
        "A70",
        "the accessors of a failed one",
    ),
    # --------------------------------------------------------------------- errors
    *(
        Case(f"error_{code.lower()}", coded(failing(code)), "C98", f"{code} as a status")
        for code in _CODES
    ),
    *(
        Case(f"error_{code.lower()}_over_grpc", called(failing(code)), "D40", f"{code} as a code")
        for code in _CODES
    ),
    Case(
        "error_without_a_code",
        coded("return [pb_utils.InferenceResponse(error=pb_utils.TritonError('on purpose'))]"),
        "A75",
        "INTERNAL unless it says otherwise",
    ),
    Case(
        "error_with_an_unknown_code",
        coded("pb_utils.TritonError('on purpose', 99)"),
        "A75",
        "a code that does not exist",
    ),
    Case(
        "error_without_a_text",
        coded("return [pb_utils.InferenceResponse(error=pb_utils.TritonError(''))]"),
        "A75",
        "an empty text",
    ),
    Case(
        "error_with_a_text_of_many_signs",
        coded("return [pb_utils.InferenceResponse(error=pb_utils.TritonError('ü\"\\n\\x01'))]"),
        "A75",
        "quotes, lines and control characters",
    ),
    Case(
        "error_that_is_a_text",
        coded("return [pb_utils.InferenceResponse(error='on purpose')]"),
        "A70",
        "an error must be a TritonError",
    ),
    Case(
        "error_beside_tensors",
        coded(
            "return [pb_utils.InferenceResponse(tensors(np.ones(1, 'f4')), "
            "pb_utils.TritonError('on purpose'))]"
        ),
        "A70",
        "the error wins",
    ),
    # ----------------------------------------------------------------- exceptions
    Case(
        "exception_in_execute",
        coded("raise ValueError('on purpose')"),
        "A24",
        "type, text and where",
    ),
    Case(
        "exception_in_execute_over_grpc",
        called("raise ValueError('on purpose')"),
        "A24",
        "the same over gRPC",
    ),
    Case(
        "exception_without_a_text",
        coded("raise KeyError"),
        "A24",
        "a class in place of an instance",
    ),
    Case(
        "exception_of_a_key",
        coded("return {}['missing']"),
        "A24",
        "KeyError shows its key as it is written",
    ),
    Case(
        "exception_of_several_lines",
        coded("raise RuntimeError('one\\ntwo')"),
        "A24",
        "a text of two lines",
    ),
    Case(
        "exception_with_a_cause",
        coded(
            "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise RuntimeError('b') from e"
        ),
        "A24",
        "what it came from",
    ),
    Case(
        "exception_during_another",
        coded("try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise RuntimeError('b')"),
        "A24",
        "what it came amid",
    ),
    Case(
        "exception_of_a_class_of_the_model",
        coded("class Mine(Exception): pass\nraise Mine('on purpose', 2)"),
        "A24",
        "two arguments and a class of its own",
    ),
    Case(
        "model_exception",
        coded("raise pb_utils.TritonModelException('on purpose')"),
        "A76",
        "the exception that pb_utils has",
    ),
    Case(
        "assertion_in_execute",
        coded("assert 1 == 2"),
        "A24",
        "an assertion has no text",
    ),
    Case(
        "exception_deep_in_execute",
        coded("def deep(n):\n    if n: deep(n - 1)\n    raise ValueError('deep')\ndeep(2)"),
        "A24",
        "every frame is named",
    ),
    Case(
        "exit_in_execute",
        coded("raise StopIteration('on purpose')"),
        "A24",
        "an exception that Python itself uses",
    ),
    Case(
        "syntax_error_in_execute",
        coded("return ("),
        "A24",
        "an exception with a place of its own",
    ),
    Case(
        "the_process_goes_on_after_an_exception",
        (coded("raise ValueError('on purpose')"), coded("return [say('well')]")),
        "A24",
        "the next request is served",
    ),
    # ---------------------------------------------------------------- wrong returns
    Case("returned_a_response", coded("return say(1)"), "A23", "not in a list"),
    Case("returned_a_tuple", coded("return (say(1),)"), "A23", "a tuple is no list"),
    Case("returned_a_text", coded("return 'text'"), "A23", "neither is a text"),
    Case(
        "returned_a_generator",
        coded("return (say(i) for i in range(1))"),
        "A23",
        "neither is a generator",
    ),
    Case("returned_an_empty_list", coded("return []"), "A23", "one response is missing"),
    Case("returned_one_too_many", coded("return [say(1), say(2)]"), "A23", "one too many"),
    Case(
        "returned_none_in_a_list",
        coded("return [None]")._replace(timeout_s=4),
        "A23",
        "None is no response, and nobody has a sender",
    ),
    Case("returned_a_text_in_a_list", coded("return ['x']"), "A23", "a text is no response"),
    Case(
        "returned_a_tensor_in_a_list",
        coded("return [pb_utils.Tensor('Y', np.ones(1, 'f4'))]"),
        "A23",
        "a tensor is no response",
    ),
    Case(
        "returned_an_error_in_a_list",
        coded("return [pb_utils.TritonError('on purpose')]"),
        "A23",
        "an error is no response",
    ),
    Case(
        "returned_a_text_over_grpc",
        called("return 'text'"),
        "A23",
        "the same over gRPC",
    ),
    Case(
        "returned_an_empty_list_over_grpc",
        called("return []"),
        "A23",
        "the same over gRPC",
    ),
    # ------------------------------------------------------------------- a coroutine
    Case(
        "coroutine_that_returns",
        said_by("(await asyncio.sleep(0)) or 1", model="coded_async"),
        "A26",
        "is awaited",
    ),
    Case(
        "coroutine_that_raises",
        coded("await asyncio.sleep(0)\nraise ValueError('on purpose')", model="coded_async"),
        "A26",
        "its exception is the answer",
    ),
    Case(
        "coroutine_that_returns_a_text",
        coded("return 'text'", model="coded_async"),
        "A26",
        "its return is judged like any other",
    ),
    Case(
        "coroutine_that_returns_an_error",
        coded(failing("NOT_FOUND"), model="coded_async"),
        "A26",
        "an error from a coroutine",
    ),
)
