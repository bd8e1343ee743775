from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.quick import every
from zmqtriton_extras.openai.call_text import (
    FORCED_LIST,
    FORMS,
    CallPart,
    CallReader,
    CallText,
    ForcedCall,
    Form,
)

ALL_FORMS = {**FORMS, "forced": FORCED_LIST}
WEATHER = ("weather", {"city": "Rome"})
TIME = ("time", {"zone": 'a "b" {c} \\ é'})


def call(name: str, arguments: Any, key: str = "arguments") -> str:
    return json.dumps({"name": name, key: arguments}, ensure_ascii=False)


#: The form, a text, and what is text and what are calls in it.
TEXTS: list[tuple[str, str, str, list[tuple[str, Any]]]] = [
    ("hermes", "No calls < here.", "No calls < here.", []),
    ("hermes", f"<tool_call>\n{call(*WEATHER)}\n</tool_call>", "", [WEATHER]),
    (
        "hermes",
        f"Let me see.\n<tool_call>{call(*WEATHER)}</tool_call>\n<tool_call>\n{call(*TIME)}\n"
        "</tool_call>\n",
        "Let me see.\n",
        [WEATHER, TIME],
    ),
    ("hermes", f"<tool_call>{call(*TIME)}</tool_call> Done.", " Done.", [TIME]),
    # the name may come last, and more beside it
    (
        "hermes",
        '<tool_call>{"arguments": {"city": "Rome"}, "id": [1, {"name": "x"}], "name": "weather"}',
        "",
        [WEATHER],
    ),
    # some models write the arguments as a text
    ("hermes", f"<tool_call>{call('weather', json.dumps(WEATHER[1]))}</tool_call>", "", [WEATHER]),
    ("hermes", '<tool_call>{"name": "now"}</tool_call>', "", [("now", {})]),
    ("hermes", '<tool_call>{"name": 7}</tool_call>.', '<tool_call>{"name": 7}</tool_call>.', []),
    ("hermes", "<tool_call>no</tool_call>.", "<tool_call>no</tool_call>.", []),
    ("hermes", "<tool_call></tool_call>.", "<tool_call></tool_call>.", []),
    ("hermes", '<tool_call>{"name": "we', '<tool_call>{"name": "we', []),
    ("hermes", "a <tool_c", "a <tool_c", []),
    ("hermes", " \n", " \n", []),
    ("llama3_json", call(*WEATHER, "parameters"), "", [WEATHER]),
    ("llama3_json", f"\n<|python_tag|>{call(*WEATHER, 'parameters')}", "", [WEATHER]),
    (
        "llama3_json",
        f"{call(*WEATHER, 'parameters')}; {call(*TIME, 'parameters')}",
        "",
        [WEATHER, TIME],
    ),
    ("llama3", call(*WEATHER, "parameters"), "", [WEATHER]),
    ("llama3_json", '{"name": "Bob", "age": 7}', '{"name": "Bob", "age": 7}', []),
    ("llama3_json", f"See: {call(*WEATHER)}", f"See: {call(*WEATHER)}", []),
    ("llama3_json", "<|python", "<|python", []),
    ("mistral", f"[TOOL_CALLS] [{call(*WEATHER)}, {call(*TIME)}]", "", [WEATHER, TIME]),
    ("mistral", f"Yes.[TOOL_CALLS][{call(*WEATHER)}] Then", "Yes. Then", [WEATHER]),
    (
        "mistral",
        '[TOOL_CALLS]weather{"city": "Rome"}[TOOL_CALLS]time[ARGS]' + json.dumps(TIME[1]),
        "",
        [WEATHER, TIME],
    ),
    ("mistral", "[TOOL_CALLS][]", "[TOOL_CALLS][]", []),
    ("mistral", "[TOOL", "[TOOL", []),
    ("mistral", "[1, 2]", "[1, 2]", []),
    (
        "forced",
        f"[{call(*WEATHER, 'parameters')},\n{call(*TIME, 'parameters')}]",
        "",
        [WEATHER, TIME],
    ),
    ("forced", "I cannot.", "I cannot.", []),
]


def read(reader: CallReader, pieces: list[str]) -> tuple[str, list[tuple[str, str]]]:
    """Return the text, and the calls with their arguments as they were written."""
    text, ids = "", set()
    names: list[str] = []
    arguments: dict[int, str] = {}
    for parts in [*map(reader.feed, pieces), reader.end()]:
        for part in parts:
            if isinstance(part, str):
                text += part
                continue
            if part.name:
                assert len(names) == part.number, "calls are numbered"
                names.append(part.name)
                ids.add(part.id)
            else:
                assert part.number == len(names) - 1
                assert not part.id
            arguments[part.number] = arguments.get(part.number, "") + part.arguments
    assert len(ids) == len(names)
    return text, [(name, arguments[number]) for number, name in enumerate(names)]


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(("form", "text", "said", "calls"), TEXTS)
def test_calls_are_found_whatever_the_pieces(
    form: str, text: str, said: str, calls: list[tuple[str, Any]], size: int
) -> None:
    pieces = [text[at : at + size] for at in range(0, len(text), size)]

    rest, called = read(CallText(ALL_FORMS[form]), pieces)

    assert said == rest
    assert calls == [(name, json.loads(arguments)) for name, arguments in called]


MARKS = (
    "<tool_call>",
    "</tool_call>",
    "[TOOL_CALLS]",
    "<|python_tag|>",
    "[ARGS]",
    "[",
    "]",
    "{",
    "}",
    '"name": "f"',
    '"arguments": {"a": 1}',
    ",",
    ";",
    ":",
    '"',
    "\\",
    " ",
    "x",
)


@pytest.mark.slow
@given(
    st.sampled_from(sorted(ALL_FORMS)),
    st.lists(
        st.sampled_from(MARKS),
        max_size=16,
    ),
    st.integers(1, 5),
)
def test_any_text_is_the_same_in_any_pieces(form: str, words: list[str], size: int) -> None:
    text = "".join(words)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]

    assert read(CallText(ALL_FORMS[form]), [text]) == read(CallText(ALL_FORMS[form]), pieces)


@pytest.mark.slow
@given(st.sampled_from(sorted(FORMS)), st.text(max_size=60))
def test_a_text_without_marks_and_objects_is_left_as_it_is(form: str, text: str) -> None:
    plain = text.replace("{", "(").replace("<", "(").replace("[", "(")

    assert (plain, []) == read(CallText(FORMS[form]), [*plain])


def test_arguments_are_told_while_they_grow() -> None:
    reader = CallText(FORMS["hermes"])

    first = reader.feed('I see <tool_call>{"name": "f", "arguments": {"a": ')
    second = reader.feed('"x')
    third = reader.feed('"}}')

    said, begun = first
    assert said == "I see "
    assert isinstance(begun, CallPart)
    assert (begun.number, begun.arguments.strip(), begun.name) == (0, '{"a":', "f")
    assert [CallPart(0, '"x')] == second
    assert [CallPart(0, '"}')] == third


def test_arguments_that_are_cut_are_told_as_far_as_they_came() -> None:
    text = '<tool_call>{"name": "f", "arguments": {"a": [1, 2'

    assert read(CallText(FORMS["hermes"]), [text]) == ("", [("f", '{"a": [1, 2')])


def test_ids_are_those_that_a_model_of_the_form_knows() -> None:
    (plain,) = CallText(FORMS["hermes"]).feed(f"<tool_call>{call(*WEATHER)}")
    (short,) = CallText(FORMS["mistral"]).feed(f"[TOOL_CALLS][{call(*WEATHER)}")

    assert isinstance(plain, CallPart)
    assert isinstance(short, CallPart)
    assert plain.id.startswith("call_")
    assert len(plain.id) == 29
    assert len(short.id) == 9
    assert short.id.isalnum()


def test_a_forced_call_has_all_of_the_text() -> None:
    assert read(ForcedCall("f"), ['{"a"', "", ": 1}"]) == ("", [("f", '{"a": 1}')])
    assert read(ForcedCall("f"), []) == ("", [("f", "")])


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>x" * 10_000,
        "<tool_call>" + "," * 100_000,
        "<tool_call>" + " " * 100_000,
        "<tool_call>" + '{"name": "f"}' * 10_000,
        "<tool_call>" + "{" * 100_000,
        '<tool_call>{"name": "' + "x" * 100_000,
        '<tool_call>{"name": "f", "arguments": "' + "\\" * 100_000,
        "[TOOL_CALLS]" + "[" * 100_000,
        "[TOOL_CALLS]x" * 10_000,
        " " * 100_000 + "{",
    ],
    ids=lambda text: text[:30],
)
@pytest.mark.parametrize("form", every(4, FORMS.values()), ids=FORMS)
def test_a_long_text_is_read_once(form: Form, text: str) -> None:
    """The time grows as the text does: a reader that looked back would take minutes."""
    reader = CallText(form)

    said, _ = read(reader, [text])

    assert len(said) <= len(text)
