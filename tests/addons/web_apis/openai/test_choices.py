from __future__ import annotations

from typing import Any

import pytest

from tests.frontends.http_api.text_models import response, text_model
from zmqtriton_addons.web_apis.openai.choices import Choices
from zmqtriton_addons.web_apis.openai.tensor_names import OUTPUTS, TensorNames
from zmqtriton_floor.errors import InternalError
from zmqtriton_floor.wire import ResponseBody, Tensor
from zmqtriton_frontends.inference.catalogue import ModelVersion

_NUMBERS = ("num_input_tokens", "num_output_tokens", "embedding")
_OUTPUTS = tuple((name, "INT64" if name in _NUMBERS else "STRING") for name in OUTPUTS.values())
MODEL = ModelVersion(text_model(outputs=_OUTPUTS))
NAMES = TensorNames(MODEL.config, MODEL.signature)


def test_texts_of_several_responses_are_put_together() -> None:
    choices = Choices(NAMES, "prompt", 2)

    first = choices.take(response(text_output=[b"a", b"b"]))
    second = choices.take(response(text_output=[b"", b" c"]))

    assert [(0, "a"), (1, "b")] == first
    assert [(0, ""), (1, " c")] == second
    assert ["a", "b c"] == [choice.text for choice in choices.all]


def test_a_character_may_be_cut_between_responses() -> None:
    choices = Choices(NAMES, "")
    whole = "é😀".encode()

    found = [choices.take(response(text_output=[whole[i : i + 1]])) for i in range(len(whole))]

    assert "é😀" == choices.all[0].text
    assert ["", "é", "", "", "", "😀"] == [text for ((_, text),) in found]
    assert [] == choices.end()


def test_bytes_that_are_no_text_are_replaced() -> None:
    choices = Choices(NAMES, "")

    choices.take(response(text_output=[b"\xff\x00a\xc3"]))

    assert [(0, "�")] == choices.end()
    assert "�\x00a�" == choices.all[0].text


def test_each_choice_has_its_reason() -> None:
    choices = Choices(NAMES, "", 4)

    choices.take(response(text_output=[b""] * 4, finish_reason=[b"None", b"length", b"None", b""]))
    choices.take(response(finish_reason=[b"stop", b"None", b"abort", b"\xff"]))

    assert ["stop", "length", "stop", "stop"] == [choice.reason for choice in choices.all]


def test_tokens_are_those_that_the_model_counts() -> None:
    choices = Choices(NAMES, "a prompt that is long", 2)

    choices.take(response(num_input_tokens=[7], num_output_tokens=[1, 2]))
    choices.take(response(num_input_tokens=[7], num_output_tokens=[3, 0]))

    assert (7, 6) == (choices.prompt_tokens, choices.completion_tokens)


def test_tokens_that_nobody_counts_are_estimated() -> None:
    choices = Choices(NAMES, "é" * 3, 2, has_echo=True)

    choices.take(response(text_output=[b"abcd", b"abcde"]))

    # of six bytes, and of four and five
    assert (2, 3) == (choices.prompt_tokens, choices.completion_tokens)
    assert ["éééabcd", "éééabcde"] == [choice.text for choice in choices.all]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (response(text_output=[b"a", b"b"]), "has 2 texts, 1 of them were asked for"),
        (response(text_output=[7]), "'text_output' must hold strings"),
        (response(finish_reason=[7]), "'finish_reason' must hold strings"),
        (response(num_output_tokens=[b"a"]), "'num_output_tokens' must hold numbers"),
        (
            ResponseBody({}, [Tensor("text_output", 13, [1], b"\7\0\0\0a")]),
            "'text_output' is invalid: incomplete string data",
        ),
        (
            ResponseBody({}, [Tensor("num_input_tokens", 9, [1], b"abc")]),
            "'num_input_tokens' is invalid",
        ),
    ],
)
def test_outputs_that_cannot_be_meant_are_errors(body: Any, text: str) -> None:
    with pytest.raises(InternalError, match=text):
        Choices(NAMES, "").take(body)


def test_other_outputs_are_nobodys() -> None:
    assert [] == Choices(NAMES, "").take(response(logprobs=[b"null"]))
