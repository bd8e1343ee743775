from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.frontends.http_api.text_models import response, text_model
from zmqtriton_extras.openai.call_text import FORMS, CallText
from zmqtriton_extras.openai.choices import Addition, ChoiceRules, Choices
from zmqtriton_extras.openai.tensor_names import OUTPUTS, TensorNames
from zmqtriton_floor.errors import InternalError
from zmqtriton_floor.wire import ResponseBody, Tensor
from zmqtriton_frontends.inference.model_version import ModelVersion

_NUMBERS = ("num_input_tokens", "num_output_tokens", "embedding")
_OUTPUTS = tuple((name, "INT64" if name in _NUMBERS else "STRING") for name in OUTPUTS.values())
MODEL = ModelVersion(text_model(outputs=_OUTPUTS))
NAMES = TensorNames(MODEL.config, MODEL.signature)


def test_texts_of_several_responses_are_put_together() -> None:
    choices = Choices(NAMES, "prompt", ChoiceRules(2))

    first = choices.take(response(text_output=[b"a", b"b"]))
    second = choices.take(response(text_output=[b"", b" c"]))

    assert [Addition(0, "a"), Addition(1, "b")] == first
    assert [Addition(0), Addition(1, " c")] == second
    assert [choice.text for choice in choices.all] == ["a", "b c"]


def test_a_character_may_be_cut_between_responses() -> None:
    choices = Choices(NAMES, "")
    whole = "é😀".encode()

    parts = [choices.take(response(text_output=[whole[i : i + 1]])) for i in range(len(whole))]

    assert choices.all[0].text == "é😀"
    assert [one.text for (one,) in parts] == ["", "é", "", "", "", "😀"]
    assert choices.end() == []


def test_bytes_that_are_no_text_are_replaced() -> None:
    choices = Choices(NAMES, "")

    choices.take(response(text_output=[b"\xff\x00a\xc3"]))

    assert [Addition(0, "�")] == choices.end()
    assert choices.all[0].text == "�\x00a�"


def test_each_choice_has_its_reason() -> None:
    choices = Choices(NAMES, "", ChoiceRules(4))

    choices.take(response(text_output=[b""] * 4, finish_reason=[b"None", b"length", b"None", b""]))
    choices.take(response(finish_reason=[b"stop", b"None", b"abort", b"\xff"]))

    assert [choice.reason for choice in choices.all] == ["stop", "length", "stop", "stop"]


def test_tokens_are_those_that_the_model_counts() -> None:
    choices = Choices(NAMES, "a prompt that is long", ChoiceRules(2))

    choices.take(response(num_input_tokens=[7], num_output_tokens=[1, 2]))
    choices.take(response(num_input_tokens=[7], num_output_tokens=[3, 0]))

    assert (choices.prompt_tokens, choices.completion_tokens) == (7, 6)


def test_tokens_that_nobody_counts_are_estimated() -> None:
    choices = Choices(NAMES, "é" * 3, ChoiceRules(2, has_echo=True))

    choices.take(response(text_output=[b"abcd", b"abcde"]))

    # of six bytes, and of four and five
    assert (choices.prompt_tokens, choices.completion_tokens) == (2, 3)
    assert [choice.text for choice in choices.all] == ["éééabcd", "éééabcde"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (response(text_output=[b"a", b"b"]), "has 2 texts, 1 of them were asked for"),
        (response(text_output=[7]), "'text_output' must hold strings"),
        (response(finish_reason=[7]), "'finish_reason' must hold strings"),
        (response(num_output_tokens=[b"a"]), "'num_output_tokens' must hold numbers"),
        (response(tool_calls=[7]), "'tool_calls' must hold strings"),
        (response(text_output=[b""], tool_calls=[b"{"]), "'tool_calls' must hold JSON"),
        (
            ResponseBody({}, [Tensor("text_output", 13, [1], b"\7\0\0\0a")]),
            "'text_output' is invalid: incomplete string data",
        ),
        (
            ResponseBody({}, [Tensor("num_input_tokens", 9, [1], b"abc")]),
            "'num_input_tokens' must hold finite numbers",
        ),
    ],
)
def test_outputs_that_cannot_be_meant_are_errors(body: Any, text: str) -> None:
    with pytest.raises(InternalError, match=text):
        Choices(NAMES, "").take(body)


def test_other_outputs_are_nobodys() -> None:
    assert Choices(NAMES, "").take(response(logprobs=[b"null"])) == []


CALLS = ChoiceRules(new_reader=partial(CallText, FORMS["hermes"]))
CALL = b'<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'


def test_calls_in_a_text_are_why_it_ends() -> None:
    choices = Choices(NAMES, "", CALLS)

    choices.take(response(text_output=[b"See. " + CALL[:30]], finish_reason=[b"None"]))
    choices.take(response(text_output=[CALL[30:] + CALL], finish_reason=[b"stop"]))
    choices.end()

    (choice,) = choices.all
    assert (choice.text, choice.reason) == ("See. ", "tool_calls")
    assert [(call.name, call.arguments) for call in choice.calls] == [("f", '{"a": 1}')] * 2


@pytest.mark.parametrize(
    ("rules", "told", "reason"),
    [
        (CALLS._replace(are_calls_a_reason=False), b"stop", "stop"),
        (CALLS, b"length", "length"),
    ],
)
def test_calls_need_not_be_why_it_ends(rules: ChoiceRules, told: bytes, reason: str) -> None:
    choices = Choices(NAMES, "", rules)

    choices.take(response(text_output=[CALL], finish_reason=[told]))

    assert reason == choices.all[0].reason


def test_a_client_that_wants_one_call_gets_one() -> None:
    choices = Choices(NAMES, "", CALLS._replace(is_parallel=False))

    choices.take(response(text_output=[CALL + CALL]))

    assert len(choices.all[0].calls) == 1


def test_a_stream_that_keeps_nothing_tells_calls_as_they_grow() -> None:
    choices = Choices(NAMES, "", CALLS._replace(are_kept=False))

    (first,) = choices.take(response(text_output=[CALL[:40]]))
    (second,) = choices.take(response(text_output=[CALL[40:]]))

    assert [part.name for part in (*first.calls, *second.calls)] == ["f", ""]
    assert (
        choices.all[0].text,
        choices.all[0].calls,
        choices.all[0].reason,
    ) == ("", [], "tool_calls")


def test_a_model_may_tell_its_calls_by_an_output() -> None:
    choices = Choices(NAMES, "", ChoiceRules(2))
    one, two = b'[{"name": "f", "arguments": {}}]', b'[{"name": "g"}, {"name": "h"}]'

    choices.take(response(text_output=[b"a", b"b"], tool_calls=[one, b""]))
    (addition, _) = choices.take(response(text_output=[b"", b""], tool_calls=[two, b"null"]))

    assert [part.number for part in addition.calls] == [1, 2]
    assert [[call.name for call in one.calls] for one in choices.all] == [["f", "g", "h"], []]


def test_probabilities_are_told_to_clients_that_ask_for_them() -> None:
    step = b'[{"5": {"decoded_token": "a", "logprob": -1.0, "rank": 1}}]'
    asked, other = Choices(NAMES, "", ChoiceRules(logprobs=1)), Choices(NAMES, "")

    for choices in (asked, other):
        choices.take(response(text_output=[b"a"], logprobs=[step]))
        choices.take(response(text_output=[b"a"], logprobs=[b"null"]))

    assert [token.taken for token in asked.all[0].logprobs] == [("a", -1.0)]
    assert other.all[0].logprobs == []


def test_a_message_has_text_and_calls() -> None:
    config = text_model(
        outputs=(("output", "STRING"),), parameters={"openai_message_output": "output"}
    )
    model = ModelVersion(config)
    choices = Choices(TensorNames(model.config, model.signature), "")

    choices.take(response(output=[b'{"content": "I ", "tool_calls": [{"name": "a"}]}']))
    choices.take(response(output=[b'{"content": null, "tool_calls": [{"name": "b"}]}']))

    [choice] = choices.all
    assert ("I ", ["a", "b"]) == (choice.text, [call.name for call in choice.calls])
    for wrong in (b"[]", b"text", b'{"content": 5}'):
        with pytest.raises(InternalError, match="output 'output' must hold a message, such as"):
            choices.take(response(output=[wrong]))
