"""The events of a response, as OpenAI's own client puts them together."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from tests.conftest import Later
from tests.frontends.http_api.text_models import response, text_model
from zmqtriton_addons.web_apis.openai.call_text import FORMS, CallText
from zmqtriton_addons.web_apis.openai.choices import ChoiceRules, Choices
from zmqtriton_addons.web_apis.openai.documents import AnswerEvents
from zmqtriton_addons.web_apis.openai.responses import Response, read_response
from zmqtriton_addons.web_apis.openai.tensor_names import OUTPUTS, TensorNames
from zmqtriton_floor.errors import Unavailable
from zmqtriton_frontends.inference.catalogue import ModelVersion

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


def test_a_text_is_told_as_it_grows() -> None:
    stream = streamed(["one", " two"])

    assert [
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
    ] == [event.type.removeprefix("response.") for event in stream]
    assert "one two" == put_together(stream).output_text
    assert "completed" == put_together(stream).status


def test_calls_are_items_of_their_own() -> None:
    stream = streamed(["See. ", CALL[:40], CALL[40:] + CALL])

    message, *calls = put_together(stream).output
    assert "See. " == message.content[0].text
    assert [("f", '{"a": 1}')] * 2 == [(call.name, call.arguments) for call in calls]
    assert [0, 1, 2] == [e.output_index for e in stream if e.type == "response.output_item.done"]
    assert 2 == len({call.call_id for call in calls})


def test_an_answer_of_calls_has_no_message() -> None:
    assert ["function_call"] == [item.type for item in put_together(streamed([CALL])).output]


def test_an_empty_answer_is_a_message() -> None:
    assert "" == put_together(streamed([""])).output_text


def test_a_text_that_was_cut_is_incomplete() -> None:
    last = streamed(["one"], b"length")[-1]

    assert "response.incomplete" == last.type
    assert ("incomplete", "max_output_tokens") == (
        last.response.status,
        last.response.incomplete_details.reason,
    )
    assert "incomplete" == last.response.output[0].status


def test_an_error_amid_a_stream_is_the_response_s() -> None:
    own, choices = form(), Choices(NAMES, "a", rules(are_kept=False))
    sent = AnswerEvents(own, choices).add(choices.take(response(text_output=[b"one"])))

    last = events(sent + own.failure(Unavailable("no instance")))[-1]

    assert ("response.failed", "failed") == (last.type, last.response.status)
    assert ("server_error", "no instance") == (
        last.response.error.code,
        last.response.error.message,
    )


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
    assert ("a", [-1.0]) == (part.text, [token.logprob for token in part.logprobs or ()])
    assert ("f", '{"a": 1}') == (call.name, call.arguments)
