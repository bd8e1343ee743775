"""Requests as an inference callable sees them, and where it runs."""

from __future__ import annotations

from typing import Any

from tests.conformance.cases import Case, Http, Rpc, call, elements, infer, tensor
from zmqtriton_extras.pytriton.tests.conformance.raw import integers

SCRIPTS = ("coded",)


def said(expression: str, *inputs: Any, model: str = "coded", **rest: Any) -> Http:
    """The value of an expression, as the callable sees it, as JSON."""
    shape = [1, 1] if "batched" in model else [1]
    value = f"text({expression})" + (".reshape(1, 1)" if "batched" in model else "")
    code = tensor("CODE", "BYTES", [f"return [{{'T': {value}}}]"], shape)
    return infer(model, code, *inputs, **rest)


def forwarded(headers: dict[str, str], **rest: Any) -> Http:
    request = said("sorted(request.parameters.items())", **rest)
    return request._replace(headers=headers)


def called(expression: str, more: str = "", metadata: dict[str, str] | None = None) -> Rpc:
    code = ("CODE", "BYTES", [1], elements(f"return [{{'T': text({expression})}}]"))
    request = call("coded", code, more=more)
    return request._replace(metadata=metadata or {})


X = tensor("X", "FP32", [1.0, 2.0, 3.0])
PARAMETER = 'parameters {{ key: "{}" value {{ {} }} }}'.format


def case(name: str, request: Http | Rpc, why: str, row: str = "J06") -> Case:
    return Case(name, request, row, why)


CASES = (
    case("request_type", said("type(request).__name__"), "has a name"),
    case("requests_type", said("type(requests).__name__"), "a list"),
    case("request_is_no_dictionary", said("isinstance(request, dict)"), "but looks like one"),
    case("request_length", said("[len(requests), len(request)]", X), "of what was sent"),
    case("request_keys", said("list(request)", X), "in the configuration's order"),
    case("request_keys_and_items", said("[[*request.keys()], len([*request.items()])]", X), "both"),
    case("request_data", said("sorted(request.data)", X), "a dictionary"),
    case("request_contains", said("['X' in request, 'S' in request]", X), "as a mapping does"),
    case("request_without_an_optional_input", said("'X' in request"), "it is absent"),
    case("request_of_an_unknown_input", said("request['NOBODY']"), "a KeyError", "J09"),
    case("request_has_no_get", said("hasattr(request, 'get')"), "a mapping would have"),
    case("request_span", said("request.span"), "None without tracing"),
    case(
        "request_that_is_changed",
        said("[request.__setitem__('new', 1), 'new' in request, request.__delitem__('new')]"),
        "set and delete",
    ),
    case("input_kind", said("kind(request['X'])", X), "type and shape"),
    case("input_kind_of_text", said("kind(request['CODE'])"), "objects"),
    case("input_items_of_text", said("type(request['CODE'][0]).__name__"), "bytes"),
    case("input_of_a_batch", said("kind(request['CODE'])", model="coded_batched"), "rows first"),
    case("input_writeable", said("bool(request['X'].flags.writeable)", X), "may be written to"),
    case("input_contiguous", said("bool(request['X'].flags.c_contiguous)", X), "in C's order"),
    case("input_class", said("type(request['X']).__name__", X), "numpy's own"),
    case(
        "input_without_elements",
        said("kind(request['X'])", tensor("X", "FP32", [])),
        "a tensor without elements",
    ),
    case(
        "input_of_text_without_elements",
        said("kind(request['S'])", tensor("S", "BYTES", [])),
        "a tensor without elements",
    ),
    case(
        "input_of_text_with_zeros",
        said("[len(item) for item in request['S']]", tensor("S", "BYTES", ["a\0", ""])),
        "all bytes are kept",
    ),
    case("input_missing", infer("coded", X), "CODE is not optional"),
    case("input_unknown", said("0", tensor("NOBODY", "FP32", [1.0])), "refused"),
    case("input_of_another_type", said("0", tensor("X", "INT32", [1])), "refused"),
    case("input_of_another_shape", said("0", tensor("X", "FP32", [[1.0]], [1, 1])), "refused"),
    # ------------------------------------------------------------------ parameters
    case("parameters_none", said("sorted(request.parameters.items())"), "an empty dictionary"),
    case(
        "parameters_over_http",
        said(
            "sorted(request.parameters.items())",
            parameters={"text": "a", "number": 7, "flag": True},
        ),
        "with their types",
    ),
    case(
        "parameters_that_are_a_float",
        said("sorted(request.parameters.items())", parameters={"x": 1.5}),
        "over HTTP",
    ),
    case(
        "parameters_over_grpc",
        called(
            "sorted(request.parameters.items())",
            PARAMETER("text", 'string_param: "a"')
            + PARAMETER("number", "int64_param: 7")
            + PARAMETER("flag", "bool_param: false"),
        ),
        "with their types",
    ),
    case(
        "headers_that_are_forwarded",
        forwarded({"X-One": "1", "Y-Two": "2", "x-three": "3"}),
        "those that match, in small letters or not",
    ),
    case(
        "headers_beside_parameters",
        forwarded({"x-one": "1"}, parameters={"two": 2}),
        "both",
    ),
    case(
        "metadata_that_are_forwarded",
        called("sorted(request.parameters.items())", metadata={"x-one": "1", "y-two": "2"}),
        "those that match",
    ),
    # --------------------------------------------------------------------- outputs
    case("requested_of_all", said("sorted(request.requested_output_names)"), "where none is named"),
    case(
        "requested_of_two",
        said("sorted(request.requested_output_names)", outputs=[{"name": "T"}, {"name": "F"}]),
        "those alone",
    ),
    case("requested_type", said("type(request.requested_output_names).__name__"), "a list"),
    case(
        "requested_over_grpc",
        called("sorted(request.requested_output_names)", 'outputs { name: "T" }'),
        "the same",
    ),
    case("requested_of_an_unknown_one", said("0", outputs=[{"name": "NOBODY"}]), "refused"),
    case("id_comes_back", said("0", id="mine"), "the client's id"),
    # ----------------------------------------------------------------- where it runs
    case("process_of_the_callable", said("os.getpid() == HOST"), "the one that has bound it"),
    case(
        "thread_of_the_callable",
        said("threading.current_thread() is threading.main_thread()"),
        "not the main one",
    ),
    case("thread_name", said("threading.current_thread().name"), "the first handler"),
    case("loop_around_a_function", said("asyncio.get_running_loop().is_running()"), "there is one"),
    case(
        "loop_within_a_function",
        said("asyncio.run(asyncio.sleep(0, 7))"),
        "is refused, since another is running",
        "J09",
    ),
    case(
        "coroutine_that_awaits",
        said("await asyncio.sleep(0, 7)", model="coded_async"),
        "in a coroutine function",
    ),
    case(
        "raw_input",
        call(
            "coded",
            ("CODE", "BYTES", [1], elements("return [{'I': request['SCALAR']}]")),
            ("SCALAR", "INT32", [1], integers(7)),
        ),
        "raw over gRPC",
    ),
)
