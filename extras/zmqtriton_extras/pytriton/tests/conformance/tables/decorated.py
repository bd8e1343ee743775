"""The decorators: what they make of requests that are executed together, and of outputs."""

from __future__ import annotations

from tests.conformance.cases import Case, Request, Stream, message
from zmqtriton_extras.pytriton.tests.conformance.raw import FP32, floats, integers

SCRIPTS = ("decorated",)
#: A request: the rows of `a`, and the rows of `k` if it has any.
Rows = tuple[list[list[float]], list[int]]


def together(model: str, *requests: Rows | list[list[float]]) -> Stream:
    """Requests of four rows in all, which the model's batcher gathers into one call."""
    messages = []
    for number, request in enumerate(requests):
        a, k = request if isinstance(request, tuple) else (request, [])
        inputs = [("a", FP32, [len(a), len(a[0])], floats(*(x for row in a for x in row)))]
        if k:
            inputs.append(("k", "INT32", [len(a), len(k) // len(a)], integers(*k)))
        messages.append(message(model, *inputs, more=f'id: "{number}"'))
    return Stream(messages)


FOUR: list[list[float]] = [[1.0], [2.0], [3.0], [4.0]]
ONE_AND_THREE = (FOUR[:1], FOUR[1:])
EQUAL = (FOUR, [5, 5, 5, 5])
UNEQUAL = (FOUR, [5, 6, 5, 6])
WIDE: list[list[float]] = [[1.0, 2.0, 3.0]] * 4
HALVES = ((FOUR[:2], [5, 5]), (FOUR[2:], [6, 6]))


def alone(model: str, *inputs: tuple[str, str, list[int], bytes]) -> Stream:
    return Stream([message(model, *inputs)])


A = ("a", FP32, [2], floats(1, 2))
ROW = ("a", FP32, [1, 1], floats(1))
K = ("k", "INT32", [1], integers(5))


def case(name: str, request: Request, why: str, row: str = "J20") -> Case:
    return Case(name, request, row, why)


CASES = (
    case("batch_of_one_request", together("batched", FOUR), "four rows"),
    case("batch_of_two_requests", together("batched", *ONE_AND_THREE), "one call, two answers"),
    case("batch_of_four_requests", together("batched", *([row] for row in FOUR)), "one call"),
    case("batch_with_optional_inputs", together("batched", *HALVES), "all have them"),
    case(
        "batch_of_requests_with_other_keys",
        together("batched_mixed", FOUR[:2], (FOUR[2:], [1, 1])),
        "are not joined",
    ),
    case("batch_that_returns_a_list", together("batched_list", *ONE_AND_THREE), "in order"),
    case("batch_that_returns_a_tuple", together("batched_tuple", FOUR), "in order"),
    case("batch_that_returns_a_short_list", together("batched_short_list", FOUR), "refused"),
    case("batch_that_returns_too_few", together("batched_too_few", *ONE_AND_THREE), "refused"),
    case("batch_that_returns_nothing", together("batched_nothing", FOUR), "refused"),
    case("batch_that_raises", together("batched_raises", *ONE_AND_THREE), "both hear it", "J09"),
    case("batch_of_a_coroutine", together("batched_async", FOUR), "is not awaited"),
    case("batch_of_a_method", together("batched_method", *ONE_AND_THREE), "has its object"),
    case("batch_of_an_object", together("batched_object", FOUR), "its __call__"),
    case("batch_of_a_generator", together("batched_each", FOUR), "each part is split"),
    case(
        "groups_of_keys_together",
        together("by_keys", FOUR[:1], (FOUR[1:2], [10]), FOUR[2:3], (FOUR[3:], [20])),
        "two calls, answers in order",
        "J23",
    ),
    case("groups_of_one_value", together("by_values", EQUAL), "one call", "J24"),
    case("groups_of_two_values", together("by_values", UNEQUAL), "two calls", "J24"),
    case("groups_of_two_requests", together("by_values", *HALVES), "two calls", "J24"),
    case("groups_that_are_padded", together("by_values_padded", (WIDE, [1, 2, 1, 3])), "", "J24"),
    case("groups_of_other_widths", together("by_values_uneven", (WIDE, [1, 2, 1, 3])), "", "J24"),
    case("groups_without_the_value", together("by_values", FOUR), "a KeyError", "J24"),
    case("groups_before_the_batch", together("by_values_wrongly", EQUAL), "refused", "J24"),
    case("defaults_that_are_filled", together("filled", FOUR), "a row for each", "J25"),
    case("defaults_that_are_given", together("filled", EQUAL), "are kept", "J25"),
    case(
        "defaults_of_some",
        together("filled_mixed", FOUR[:2], (FOUR[2:], [1, 2])),
        "not joined",
        "J25",
    ),
    case("defaults_of_an_unknown_input", together("filled_unknown", FOUR), "refused", "J25"),
    case("defaults_that_are_a_number", together("filled_number", FOUR), "refused", "J25"),
    case("defaults_of_another_type", together("filled_type", FOUR), "refused", "J25"),
    case("defaults_of_another_shape", together("filled_shape", FOUR), "refused", "J25"),
    case("padding_to_the_largest", together("padded", FOUR[:2], FOUR[2:]), "four are four", "J26"),
    case("padding_that_is_returned", together("padded_all", FOUR), "nothing to add", "J26"),
    case("first_of_equal_values", together("first", EQUAL), "a scalar", "J22"),
    case("first_of_two_equal_values", together("first", (FOUR, [5, 5] * 4)), "no scalar", "J22"),
    case("first_of_unequal_values", together("first", UNEQUAL), "refused", "J22"),
    case("first_of_two_requests", together("first", *HALVES), "they are joined before", "J22"),
    case("first_of_no_values", together("first", FOUR), "it is missing", "J22"),
    case("first_that_is_kept", together("first_kept", EQUAL), "an array of one", "J22"),
    case("first_of_any", together("first_of_any", UNEQUAL), "the first", "J22"),
    case("first_of_each_request", together("first_of_requests", *HALVES), "each its own", "J22"),
    case("context_of_a_model", together("with_context", FOUR), "its configuration", "J27"),
    case(
        "decorators_all_together",
        together("all_together", (FOUR[:1], [7]), FOUR[1:2], (FOUR[2:3], [7]), FOUR[3:]),
        "two groups",
        "J24",
    ),
    case("context_of_a_callable_bound_twice", alone("shared_small", ROW), "", "J27"),
    case("context_of_a_callable_bound_last", alone("shared_large", ROW), "", "J27"),
    case("sample_of_a_request", alone("sampled", A), "its inputs by name", "J21"),
    case("sample_with_an_optional_input", alone("sampled", A, K), "the same", "J21"),
    case("sample_that_returns_a_list", alone("sampled_list", A), "in order", "J21"),
    case("sample_that_returns_a_number", alone("sampled_number", A), "refused", "J21"),
    case("first_without_batches", alone("first_without_batches", A, K), "refused", "J22"),
)
