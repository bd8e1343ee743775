"""Every form of an inference callable, and what becomes of its responses."""

from __future__ import annotations

from tests.conformance.cases import Case, Http, Request, Stream, call, infer, message, post, tensor
from zmqtriton_extras.pytriton.tests.conformance.raw import FP32, floats

SCRIPTS = ("forms",)


def ask(model: str) -> Http:
    return infer(model, tensor("a", "FP32", [1.0, 2.0]))


FINAL = 'parameters { key: "triton_enable_empty_final_response" value { bool_param: true } }'


def streamed(model: str, *more: str) -> Stream:
    ask = message(model, ("a", FP32, [2], floats(1, 2)))
    return Stream([ask, *more])


def case(name: str, request: Request, why: str, row: str = "J06") -> Case:
    return Case(name, request, row, why)


CASES = (
    case("form_function", ask("function"), "the plainest"),
    case("form_function_over_grpc", call("function", ("a", FP32, [2], floats(1, 2))), "the same"),
    case("form_lambda", ask("lambda"), "has no name"),
    case("form_method", ask("method"), "is bound to its object"),
    case("form_static_method", ask("static_method"), "is a function"),
    case("form_class_method", ask("class_method"), "is bound to its class"),
    case("form_callable_object", ask("callable_object"), "its __call__"),
    case("form_async_callable_object", ask("async_callable_object"), "its __call__ is awaited"),
    case("form_partial", ask("partial"), "of functools"),
    case("form_coroutine_function", ask("coroutine_function"), "is awaited"),
    case("form_async_method", ask("async_method"), "is awaited"),
    case("form_list_of_one", ask("list_of_one"), "one instance"),
    case("form_tuple_of_callables", ask("tuple_of_callables"), "any sequence"),
    case(
        "form_two_callables",
        streamed("two_callables", message("two_callables", ("a", FP32, [2], floats(1, 2)))),
        "each is an instance, and they run at the same time",
    ),
    case("form_threads", ask("threads"), "not the main thread, and a daemon"),
    case("form_generator_once", ask("generator_once"), "one response is all there may be", "J07"),
    case("form_async_generator_once", ask("async_generator_once"), "the same", "J07"),
    case("form_generator_twice", ask("generator_twice"), "needs a decoupled model", "J07"),
    case("form_generator_never", ask("generator_never"), "nothing is no response", "J07"),
    case("form_coroutine_that_fails", ask("coroutine_that_fails"), "its exception", "J09"),
    case("form_lambda_of_a_coroutine", ask("lambda_of_a_coroutine"), "is not awaited"),
    case("form_lambda_of_a_generator", ask("lambda_of_a_generator"), "is not iterated"),
    # ------------------------------------------------------------- decoupled models
    case("stream_of_a_generator", streamed("stream_generator"), "a response for each", "J07"),
    case("stream_of_an_async_generator", streamed("stream_async_generator"), "the same", "J07"),
    case("stream_of_a_callable_object", streamed("stream_callable_object"), "the same", "J07"),
    case("stream_of_a_function", streamed("stream_function"), "one response", "J07"),
    case("stream_of_a_coroutine", streamed("stream_coroutine"), "one response", "J07"),
    case("stream_of_nothing", streamed("stream_never"), "no response but the end", "J07"),
    case("stream_that_fails_amid", streamed("stream_fails_amid"), "after its first", "J09"),
    case("stream_that_fails_first", streamed("stream_fails_first"), "an error alone", "J09"),
    case("stream_of_no_outputs", streamed("stream_empty_then_more"), "an empty one first", "J07"),
    case("stream_that_is_wrong_amid", streamed("stream_wrong_amid"), "a list, no array", "J08"),
    case("stream_over_http", ask("stream_generator"), "is refused", "J07"),
    case(
        "stream_as_events",
        post("/v2/models/stream_generator/generate_stream", {"a": [1.0, 2.0]}),
        "an event for each response",
        "J07",
    ),
    case(
        "stream_with_an_empty_final_response",
        Stream(
            [
                message("stream_generator", ("a", FP32, [2], floats(1, 2)), more='id: "0"'),
                message("stream_generator", ("a", FP32, [1], floats(7)), more=f'id: "1" {FINAL}'),
            ]
        ),
        "two requests, the second of which wants to hear of the end",
        "J07",
    ),
)
