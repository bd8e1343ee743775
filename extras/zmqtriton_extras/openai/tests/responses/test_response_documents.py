"""The events of a response, as OpenAI's own client puts them together."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from pydantic import TypeAdapter

from tests.frontends.http_api.text_models import response, text_model
from tests.support.needs import Later
from zmqtriton_extras.openai.call_text import FORMS, CallText
from zmqtriton_extras.openai.choices import ChoiceRules, Choices
from zmqtriton_extras.openai.documents import AnswerEvents
from zmqtriton_extras.openai.responses import Response, read_response
from zmqtriton_extras.openai.tensor_names import OUTPUTS, TensorNames
from zmqtriton_floor.errors import Unavailable
from zmqtriton_frontends.inference.model_version import ModelVersion

openai: Any = Later("openai")
client_types: Any = Later("openai.types.responses")
client_streams: Any = Later("openai.lib.streaming.responses._responses")

_MODEL = ModelVersion(text_model(outputs=tuple((name, "STRING") for name in OUTPUTS.values())))
NAMES = TensorNames(_MODEL.config, _MODEL.signature)
STEP = b'[{"5": {"decoded_token": "a", "logprob": -1.0, "rank": 1}}]'
CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'


@cache
def _event_type() -> Any:
    return TypeAdapter(client_types.ResponseStreamEvent)


def form() -> Response:
    return Response("m", read_response({"model": "m", "input": "a"}).repeated)


def rules(*, are_kept: bool) -> ChoiceRules:
    def reader() -> CallText:
        return CallText(FORMS["hermes"])

    return ChoiceRules(are_kept=are_kept, new_reader=reader, logprobs=1)


def events(answer: bytes) -> list[Any]:
    """Parse events strictly, as the types of the client have them; they are numbered."""
    parsed = []
    for text in answer.decode().split("\n\n")[:-1]:
        name, data = text.split("\n")
        document = json.loads(data.removeprefix("data: "))
        assert name == f"event: {document['type']}"
        parsed.append(_event_type().validate_python(document))
    assert list(range(len(parsed))) == [event.sequence_number for event in parsed]
    return parsed


def streamed(texts: list[str], reason: bytes = b"stop") -> list[Any]:
    own, choices = form(), Choices(NAMES, "a", rules(are_kept=False))
    answer = AnswerEvents(own, choices)
    sent = b""
    for text in texts:
        sent += answer.add(choices.take(response(text_output=[text.encode()])))
    choices.take(response(finish_reason=[reason]))
    return events(sent + answer.end() + own.finish([choices]))


def put_together(stream: list[Any]) -> Any:
    state: Any = client_streams.ResponseStreamState(
        text_format=openai.omit, input_tools=openai.omit
    )
    for event in stream:
        state.handle_event(event)
    return state._completed_response


@pytest.mark.slow
def test_a_text_is_told_as_it_grows() -> None:
    stream = streamed(["one", " two"])

    assert [event.type.removeprefix("response.") for event in stream] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert put_together(stream).output_text == "one two"
    assert put_together(stream).status == "completed"


def test_calls_are_items_of_their_own() -> None:
    stream = streamed(["See. ", CALL[:40], CALL[40:] + CALL])

    message, *calls = put_together(stream).output
    assert message.content[0].text == "See. "
    assert [(call.name, call.arguments) for call in calls] == [("f", '{"a": 1}')] * 2
    assert [e.output_index for e in stream if e.type == "response.output_item.done"] == [0, 1, 2]
    assert len({call.call_id for call in calls}) == 2


def test_an_answer_of_calls_has_no_message() -> None:
    assert [item.type for item in put_together(streamed([CALL])).output] == ["function_call"]


def test_an_empty_answer_is_a_message() -> None:
    assert put_together(streamed([""])).output_text == ""


def test_a_text_that_was_cut_is_incomplete() -> None:
    last = streamed(["one"], b"length")[-1]

    assert last.type == "response.incomplete"
    assert (
        last.response.status,
        last.response.incomplete_details.reason,
    ) == ("incomplete", "max_output_tokens")
    assert last.response.output[0].status == "incomplete"


def test_an_error_amid_a_stream_is_the_response_s() -> None:
    own, choices = form(), Choices(NAMES, "a", rules(are_kept=False))
    sent = AnswerEvents(own, choices).add(choices.take(response(text_output=[b"one"])))

    last = events(sent + own.failure(Unavailable("no instance")))[-1]

    assert (last.type, last.response.status) == ("response.failed", "failed")
    assert (
        last.response.error.code,
        last.response.error.message,
    ) == ("server_error", "no instance")


def test_a_whole_answer_has_the_same_items() -> None:
    choices = Choices(NAMES, "a", rules(are_kept=True))
    choices.take(response(text_output=[b"a" + CALL.encode()], logprobs=[STEP]))
    choices.end()

    document = json.loads(form().document([choices]))

    message, call = client_types.Response.model_validate(document).output
    assert message.type == "message"
    assert call.type == "function_call"
    (part,) = message.content
    assert part.type == "output_text"
    assert (part.text, [token.logprob for token in part.logprobs or ()]) == ("a", [-1.0])
    assert (call.name, call.arguments) == ("f", '{"a": 1}')
