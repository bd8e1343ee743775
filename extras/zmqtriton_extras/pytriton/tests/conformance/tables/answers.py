"""Answers of inference callables, right and wrong, with and without strict validation."""

from __future__ import annotations

from tests.conformance.cases import Case, Http, Request, Stream, elements, infer, message, tensor
from zmqtriton_extras.pytriton.tests.conformance.raw import FP32, floats

SCRIPTS = ("coded",)


def coded(text: str, model: str = "coded", **rest: object) -> Http:
    """`text` is the body of the callable; `request` the first of `requests`."""
    shape = [1, 1] if "batched" in model else [1]
    code = tensor("CODE", "BYTES", [text], shape)
    return infer(model, code, tensor("X", "FP32", [1.0, 2.0], [*shape[1:], 2]), **rest)


def strict(text: str) -> Http:
    return coded(text, "coded_strict")


def batched(text: str) -> Http:
    return coded(text, "coded_batched")


def batched_strict(text: str) -> Http:
    return coded(text, "coded_batched_strict")


def returned(value: str, name: str = "F") -> str:
    return f"return [{{'{name}': {value}}}]"


def streamed(text: str) -> Stream:
    code = ("CODE", "BYTES", [1], elements(text))
    return Stream([message("coded_stream", code, ("X", FP32, [2], floats(1, 2)))])


def case(name: str, request: Request | tuple[Request, ...], why: str, row: str = "J08") -> Case:
    return Case(name, request, row, why)


CASES = (
    # --------------------------------------------------------------------- arrays
    case("array_view_of_the_input", coded(returned("request['X']")), "as it came"),
    case("array_slice", coded(returned("np.arange(6, dtype=np.float32)[::2]")), "not contiguous"),
    case("array_reversed", coded(returned("request['X'][::-1]")), "strides below zero"),
    case(
        "array_transposed",
        coded(returned("np.arange(6, dtype=np.float32).reshape(2, 3).T", "GRID")),
        "Fortran's order",
    ),
    case(
        "array_in_fortran_s_order",
        coded(returned("np.asfortranarray([[1, 2], [3, 4]], np.float32)", "GRID")),
        "the elements stay where they are",
    ),
    case(
        "array_of_which_a_column_is_taken",
        coded(returned("np.arange(6, dtype=np.float32).reshape(3, 2)[:, 1]")),
        "not contiguous in either order",
    ),
    case("array_broadcast", coded(returned("np.broadcast_to(np.float32(7), (3,))")), "read-only"),
    case(
        "array_that_is_read_only",
        coded("a = np.ones(2, np.float32)\na.flags.writeable = False\nreturn [{'F': a}]"),
        "nobody writes to it",
    ),
    case(
        "array_of_big_endian",
        coded(returned("np.array([1, 2], '>f4')")),
        "the bytes are in another order",
    ),
    case("array_of_nothing", coded(returned("np.zeros(0, np.float32)")), "no elements"),
    case(
        "array_of_nothing_by_two",
        coded(returned("np.zeros((0, 2), np.float32)", "GRID")),
        "no elements, two dimensions",
    ),
    case("array_of_no_dimension", coded(returned("np.array(3, np.float32)")), "a scalar array"),
    case("number_of_numpy", coded(returned("np.float32(3)")), "has a shape, is no array"),
    case("number_of_python", coded(returned("3.0")), "has no shape"),
    case("list_for_an_array", coded(returned("[1.0, 2.0]")), "has no shape"),
    case("none_for_an_array", coded(returned("None")), "has no shape"),
    case(
        "array_that_is_masked",
        coded(returned("np.ma.array([1, 2], dtype=np.float32, mask=[0, 1])")),
        "a subclass of an array",
    ),
    case(
        "array_of_a_matrix", coded(returned("np.matrix([[1, 2]], np.float32)", "GRID")), "one too"
    ),
    case(
        "array_that_is_changed_in_place",
        coded("request['X'] *= 3\nreturn [{'F': request['X']}]"),
        "the input may be written to",
    ),
    case(
        "array_twice",
        coded("return [{'F': request['X'], 'GRID': request['X'].reshape(1, 2)}]"),
        "two outputs of one memory",
    ),
    # ---------------------------------------------------------------------- types
    case("float64_for_float32", coded(returned("np.array([1.5, 2.5])")), "is converted"),
    case("int64_for_float32", coded(returned("np.array([1, 2])")), "is converted"),
    case("float_for_int", coded(returned("np.array([1.7, -2.7])", "I")), "is cut"),
    case("int_beyond_the_type", coded(returned("np.array([2**31 + 1])", "I")), "wraps around"),
    case("float_for_bool", coded(returned("np.array([0.0, 0.5])", "B")), "anything but 0 is true"),
    case("bool_for_float", coded(returned("np.array([True, False])")), "is converted"),
    case("complex_for_float", coded(returned("np.array([1j])")), "no such kind"),
    case("dates", coded(returned("np.array(['2020-01-01'], 'M8[D]')")), "no such kind"),
    case("records", coded(returned("np.zeros(1, [('a', 'f4')])")), "no such kind"),
    case("text_for_float", coded(returned("np.array(['1.5'])")), "is read as a number"),
    case("text_that_is_no_number", coded(returned("np.array(['x'])")), "cannot be read"),
    case("float_for_text", coded(returned("np.array([1.5])", "T")), "is an object that is no text"),
    case("strict_float64", strict(returned("np.array([1.5])")), "another type"),
    case("strict_int32", strict(returned("np.array([1], np.int32)", "I")), "the type"),
    case("strict_int64", strict(returned("np.array([1], np.int64)", "I")), "another type"),
    case("strict_float_for_text", strict(returned("np.array([1.5])", "T")), "another kind"),
    case("strict_text_for_float", strict(returned("np.array([b'1'])")), "another kind"),
    case(
        "strict_big_endian",
        strict(returned("np.array([1, 2], '>f4')")),
        "the order of bytes does not count",
    ),
    # ---------------------------------------------------------------------- texts
    case("bytes_array", coded(returned("np.array([b'a', b'bcd'])", "T")), "of one length"),
    case("bytes_objects", coded(returned("np.array([b'a', b'bcd'], object)", "T")), "of any"),
    case("bytes_that_end_in_zeros", coded(returned("np.array([b'a\\0\\0'])", "T")), "numpy's own"),
    case(
        "bytes_objects_that_end_in_zeros",
        coded(returned("np.array([b'a\\0\\0'], object)", "T")),
        "objects keep them",
    ),
    case("unicode_array", coded(returned("np.array(['a', 'bcd'])", "T")), "kind U"),
    case("unicode_beyond_ascii", coded(returned("np.array(['ä'])", "T")), "kind U"),
    case("unicode_objects", coded(returned("np.array(['a'], object)", "T")), "are refused"),
    case("objects_that_are_numbers", coded(returned("np.array([1], object)", "T")), "are refused"),
    case(
        "objects_of_which_the_second_is_a_number",
        coded(returned("np.array([b'a', 7], object)", "T")),
        "only the first is looked at",
    ),
    case("objects_that_are_none", coded(returned("np.array([None], object)", "T")), "are refused"),
    case("objects_without_elements", coded(returned("np.array([], object)", "T")), "has no first"),
    case("bytes_without_elements", coded(returned("np.array([], 'S1')", "T")), "nothing is a text"),
    case("bytes_that_are_empty", coded(returned("np.array([b'', b''], object)", "T")), "two"),
    case(
        "bytes_objects_in_a_slice",
        coded(returned("np.array([b'a', b'b', b'c'], object)[::2]", "T")),
        "not contiguous",
    ),
    case("strict_unicode", strict(returned("np.array(['a'])", "T")), "is a text"),
    # --------------------------------------------------------------------- shapes
    case("shape_of_two_for_one", coded(returned("np.ones((2, 2), np.float32)")), "not looked at"),
    case("shape_beyond", coded(returned("np.ones(5, np.float32)", "FIXED")), "not looked at"),
    case("strict_shape", strict(returned("np.ones(3, np.float32)", "FIXED")), "as it says"),
    case("strict_shape_beyond", strict(returned("np.ones(5, np.float32)", "FIXED")), "three"),
    case("strict_dimensions", strict(returned("np.ones((2, 2), np.float32)")), "one"),
    case("strict_dimension_amid", strict(returned("np.ones((2, 3), np.float32)", "GRID")), "two"),
    case("strict_scalar", strict(returned("np.array(3, np.float32)")), "one dimension"),
    case("batched_shape", batched(returned("np.ones((1, 2), np.float32)")), "a row"),
    case("batched_without_rows", batched(returned("np.ones(2, np.float32)")), "no row"),
    case("batched_rows_beyond", batched(returned("np.ones((3, 2), np.float32)")), "three of one"),
    case("batched_strict", batched_strict(returned("np.ones((1, 2), np.float32)")), "a row"),
    case("batched_strict_rows", batched_strict(returned("np.ones(2, np.float32)")), "no row"),
    # ---------------------------------------------------------------------- names
    case("outputs_of_some_names", coded(returned("np.ones(1, np.int32)", "I")), "others absent"),
    case("outputs_of_no_name", coded("return [{}]"), "none at all"),
    case(
        "output_of_an_unknown_name",
        coded("return [{'F': np.ones(1, np.float32), 'NOBODY': np.ones(1)}]"),
        "is left out",
    ),
    case("output_of_an_unknown_name_alone", coded(returned("np.ones(1)", "NOBODY")), "left out"),
    case("strict_unknown_name", strict(returned("np.ones(1, np.float32)", "NOBODY")), "refused"),
    case("output_of_a_number_for_a_name", coded("return [{7: np.ones(1)}]"), "no text"),
    case(
        "output_that_is_requested",
        coded(
            "return [{'F': np.ones(1, np.float32), 'I': np.ones(1, np.int32)}]",
            outputs=[{"name": "I"}],
        ),
        "the other is left out",
    ),
    case(
        "output_that_is_requested_and_absent",
        coded(returned("np.ones(1, np.float32)"), outputs=[{"name": "I"}]),
        "nothing comes",
    ),
    case(
        "outputs_in_another_order",
        coded("return [{'I': np.ones(1, np.int32), 'F': np.ones(1, np.float32)}]"),
        "the callable's order or the configuration's",
    ),
    # --------------------------------------------------------------------- lengths
    case("answer_of_none", coded("return None"), "no list"),
    case("answer_of_a_tuple", coded("return ({'F': request['X']},)"), "no list"),
    case("answer_of_a_dictionary", coded("return {'F': request['X']}"), "no list"),
    case("answer_of_an_array", coded("return request['X']"), "no list"),
    case("answer_of_no_responses", coded("return []"), "too few"),
    case("answer_of_two_responses", coded("return [{'F': request['X']}] * 2"), "too many"),
    case("answer_of_a_list_of_lists", coded("return [[request['X']]]"), "no dictionary"),
    case("answer_of_a_list_of_numbers", coded("return [7]"), "is no dictionary"),
    case(
        "answer_of_an_ordered_dictionary",
        coded("import collections\nreturn [collections.OrderedDict(F=request['X'])]"),
        "is a dictionary",
    ),
    # ------------------------------------------------------------------ exceptions
    case("raised_value_error", coded("raise ValueError('bad weather')"), "its text", "J09"),
    case("raised_without_a_text", coded("raise ValueError"), "its name alone", "J09"),
    case(
        "raised_with_a_cause",
        coded(
            "try:\n    {}['a']\nexcept KeyError as error:\n    raise OSError('outer') from error"
        ),
        "both",
        "J09",
    ),
    case(
        "raised_of_one_s_own",
        coded("class Mine(Exception):\n    pass\nraise Mine('ours', 7)"),
        "its class and arguments",
        "J09",
    ),
    case("raised_by_the_package", coded("raise PyTritonRuntimeError('no')"), "its class", "J09"),
    case("raised_of_several_lines", coded("raise ValueError('one\\n  two\\n')"), "all", "J09"),
    case("raised_of_unicode", coded("raise ValueError('Größe ✓')"), "as it is", "J09"),
    case("raised_stop_iteration", coded("raise StopIteration('end')"), "in a function", "J09"),
    case("raised_stop_of_async", coded("raise StopAsyncIteration('end')"), "the same", "J09"),
    case("raised_in_a_strict_model", strict("raise ValueError('strict')"), "the same", "J09"),
    case(
        "raised_and_gone_on",
        (coded("raise ValueError('first')"), coded(returned("request['X']"))),
        "the next request is answered",
        "J09",
    ),
    case("divided_by_zero", coded("return 1 / 0"), "Python's own", "J09"),
    case("asserted", coded("assert len(requests) == 2, 'one only'"), "Python's own", "J09"),
    case("raised_in_a_stream", streamed("raise ValueError('bad')\nyield"), "one error", "J09"),
    case(
        "wrong_in_a_stream",
        streamed("yield [{'F': request['X']}]\nyield {'F': request['X']}"),
        "after a good one",
    ),
    case(
        "stream_of_text",
        streamed("for word in (b'a', b'b'):\n    yield [{'T': np.array([word], object)}]"),
        "two",
    ),
)
