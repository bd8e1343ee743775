"""Calls of tools, forms, probabilities, adapters and responses, by OpenAI's own client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from tests.support.needs import Later
from tests.support.server import Server

if TYPE_CHECKING:
    import openai
else:
    openai = Later("openai")


pytestmark = [
    pytest.mark.system,
    pytest.mark.server(models=[], options=["--allow-openai"], frontends=()),
]
#: Each model says the last message.
TEMPLATE = (
    "{% if tools %}{{ tools | map(attribute='function.name') | join(' ') }}\n{% endif %}"
    "{{ messages[-1].content }}"
)
TENSORS = """
input [
  { name: "response_format" data_type: TYPE_STRING dims: [ 1 ] optional: true },
  { name: "lora_name" data_type: TYPE_STRING dims: [ 1 ] optional: true }
]
output { name: "logprobs" data_type: TYPE_STRING dims: [ -1 ] }
"""
TOOL_TENSORS = """
input [
  { name: "tools" data_type: TYPE_STRING dims: [ 1 ] optional: true },
  { name: "tool_choice" data_type: TYPE_STRING dims: [ 1 ] optional: true }
]
"""


def parameter(name: str, value: str) -> str:
    return f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}\n'


def prepare(server: Server) -> None:
    for name in ("hermes", "mistral", "llama3_json"):
        parser = parameter("openai_tool_call_parser", name)
        _add(server, name, TENSORS + parser + parameter("openai_lora_adapters", "doll sheep"))
    _add(server, "shown", TOOL_TENSORS + parameter("openai_tool_call_parser", "hermes"))
    _add(server, "plain", "")


def _add(server: Server, name: str, config: str) -> None:
    directory = server.add_model("parrot", name)
    (directory / "chat_template.jinja").write_text(TEMPLATE)
    with (directory / "config.pbtxt").open("a") as file:
        file.write(config)


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120
    ) as client:
        yield client


class Weather(BaseModel):
    """The weather of a city."""

    city: str
    days: int


def weather_tool() -> Any:
    """The client's own description, by which it parses arguments."""
    return openai.pydantic_function_tool(Weather, name="weather")


WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {}, "days": {}}},
    },
}
TIME: Any = {"type": "function", "function": {"name": "time"}}
TOOLS = [WEATHER, TIME]
ROME = '{"city": "Rome", "days": 2}'
NOW = '{"zone": "CET"}'


def said(text: str) -> Any:
    """The messages of a chat after which the model says a text."""
    return [{"role": "system", "content": "Call."}, {"role": "user", "content": text}]


def call(name: str, arguments: str, key: str = "arguments") -> str:
    return f'{{"name": "{name}", "{key}": {arguments}}}'


#: By model: how it writes two calls.
CALLS = {
    "hermes": "See. <tool_call>{}</tool_call> <tool_call>{}</tool_call>".format(
        call("weather", ROME), call("time", NOW)
    ),
    "mistral": f"See. [TOOL_CALLS] [{call('weather', ROME)}, {call('time', NOW)}]",
    "llama3_json": f"{call('weather', ROME, 'parameters')}; {call('time', NOW, 'parameters')}",
}


def pairs(calls: Any) -> list[tuple[str, Any]]:
    return [(one.function.name, json.loads(one.function.arguments)) for one in calls]


def _present(values: list[Any] | None) -> list[Any]:
    assert values is not None
    return values


@pytest.mark.row("L08")
@pytest.mark.parametrize("model", CALLS)
def test_a_model_calls_tools(client: openai.OpenAI, model: str) -> None:
    answer = client.chat.completions.create(model=model, messages=said(CALLS[model]), tools=TOOLS)

    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert [("weather", json.loads(ROME)), ("time", json.loads(NOW))] == pairs(
        choice.message.tool_calls
    )
    assert ("See." if model != "llama3_json" else "") == (choice.message.content or "").strip()
    assert len({one.id for one in choice.message.tool_calls or ()}) == 2


@pytest.mark.row("L08")
@pytest.mark.parametrize("model", CALLS)
def test_calls_are_streamed(client: openai.OpenAI, model: str) -> None:
    """The client puts them together, and parses the arguments by its own type."""
    with client.chat.completions.stream(
        model=model, messages=said(CALLS[model]), tools=[weather_tool(), TIME]
    ) as stream:
        events = list(stream)
        (choice,) = stream.get_final_completion().choices

    weather, time = _present(choice.message.tool_calls)
    assert choice.finish_reason == "tool_calls"
    assert Weather(city="Rome", days=2) == weather.function.parsed_arguments
    assert ("time", json.loads(NOW)) == (time.function.name, json.loads(time.function.arguments))
    deltas = [e for e in events if e.type == "tool_calls.function.arguments.delta"]
    assert len(deltas) > 2, "arguments come as they grow"


@pytest.mark.row("L08")
def test_a_coroutine_gets_calls(server: Server) -> None:
    async def ask() -> tuple[Any, str]:
        async with openai.AsyncOpenAI(
            base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120
        ) as client:
            parsed = await client.chat.completions.parse(
                model="hermes", messages=said(CALLS["hermes"]), tools=[weather_tool()]
            )
            stream = await client.chat.completions.create(
                model="hermes", messages=said("No calls."), tools=TOOLS, stream=True
            )
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        (call, *_) = _present(parsed.choices[0].message.tool_calls)
        return call.function.parsed_arguments, text

    assert (Weather(city="Rome", days=2), "No calls.") == asyncio.run(ask())


@pytest.mark.row("L08")
def test_one_call_is_enough_for_a_client_that_says_so(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="hermes", messages=said(CALLS["hermes"]), tools=TOOLS, parallel_tool_calls=False
    )

    assert [name for name, _ in pairs(answer.choices[0].message.tool_calls)] == ["weather"]


@pytest.mark.row("L08")
@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_call_that_is_forced_is_made_by_the_engine(
    client: openai.OpenAI, is_streamed: bool
) -> None:
    """The model is told the form, and all that it says is the arguments."""
    request: Any = {
        "model": "hermes",
        "messages": said("INPUT response_format"),
        "tools": TOOLS,
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
    }
    name, text, reason = "", "", None
    if is_streamed:
        for chunk in client.chat.completions.create(**request, stream=True):
            (choice,) = chunk.choices
            for part in choice.delta.tool_calls or ():
                name += part.function.name or ""
                text += part.function.arguments or ""
            reason = choice.finish_reason
    else:
        (choice,) = client.chat.completions.create(**request).choices
        (one,) = choice.message.tool_calls
        name, text, reason = one.function.name, one.function.arguments, choice.finish_reason

    assert (name, reason) == ("weather", "stop")
    schema = json.loads(text)["json_schema"]["schema"]
    assert {"city", "days"} == schema["properties"].keys()


@pytest.mark.row("L08")
def test_some_call_that_is_forced_is_one_of_a_list(client: openai.OpenAI) -> None:
    text = f"[{call('time', NOW, 'parameters')}]"

    answer = client.chat.completions.create(
        model="hermes", messages=said(text), tools=TOOLS, tool_choice="required"
    )

    assert [("time", json.loads(NOW))] == pairs(answer.choices[0].message.tool_calls)


@pytest.mark.row("L08")
def test_tools_reach_the_template_and_the_model(client: openai.OpenAI) -> None:
    prompts = client.chat.completions.create(model="hermes", messages=said(""), tools=TOOLS)
    shown = client.chat.completions.create(
        model="shown", messages=said("INPUT tools"), tools=TOOLS, tool_choice="required"
    )
    chosen = client.chat.completions.create(
        model="shown", messages=said("INPUT tool_choice"), tools=TOOLS, tool_choice="required"
    )
    none = client.chat.completions.create(
        model="plain", messages=said("a"), tools=TOOLS, tool_choice="none"
    )

    assert prompts.choices[0].message.content == "weather time"
    assert json.loads(shown.choices[0].message.content or "") == TOOLS
    assert chosen.choices[0].message.content == '"required"'
    assert none.choices[0].message.content == "a"


@pytest.mark.row("L08")
def test_a_form_is_handed_to_the_engine_and_checked(client: openai.OpenAI) -> None:
    parsed = client.chat.completions.parse(
        model="hermes", messages=said(ROME), response_format=Weather
    )
    with client.chat.completions.stream(
        model="hermes", messages=said(ROME), response_format=Weather
    ) as stream:
        streamed = stream.get_final_completion()
    handed = client.chat.completions.create(
        model="hermes",
        messages=said("INPUT response_format"),
        response_format={"type": "json_object"},
    )

    assert Weather(city="Rome", days=2) == parsed.choices[0].message.parsed
    assert Weather(city="Rome", days=2) == streamed.choices[0].message.parsed
    assert handed.choices[0].message.content == '{"type":"json_object"}'


@pytest.mark.row("L08")
@pytest.mark.parametrize("is_streamed", [False, True])
def test_an_answer_that_is_not_of_its_form_is_an_error(
    client: openai.OpenAI, is_streamed: bool
) -> None:
    def ask() -> None:
        list(
            client.chat.completions.create(
                model="hermes",
                messages=said('{"city": "Rome"}'),
                response_format=_weather_form(),
                stream=is_streamed,
            )
        )

    with pytest.raises(openai.APIError, match=r"\$ does not fit 'required'") as error:
        ask()

    assert (error.value.type, error.value.param) == ("server_error", "response_format")


def _weather_form() -> Any:
    schema = {**Weather.model_json_schema(), "additionalProperties": False}
    return {"type": "json_schema", "json_schema": {"name": "w", "schema": schema, "strict": True}}


@pytest.mark.row("L08")
def test_an_answer_that_was_cut_is_not_checked(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="hermes", messages=said("{ and"), response_format=_weather_form(), max_tokens=1
    )

    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("{", "length")


@pytest.mark.row("L08")
def test_probabilities_of_tokens_are_told(client: openai.OpenAI) -> None:
    chat = client.chat.completions.create(
        model="hermes", messages=said("one two"), logprobs=True, top_logprobs=2, n=2
    )
    with client.chat.completions.stream(
        model="hermes", messages=said("one two"), logprobs=True
    ) as stream:
        streamed = stream.get_final_completion().choices[0].logprobs
    text = client.completions.create(model="hermes", prompt="one two", logprobs=1, echo=True)
    without = client.chat.completions.create(model="hermes", messages=said("one two"))

    for choice in chat.choices:
        assert choice.logprobs is not None
        first, second = _present(choice.logprobs.content)
        assert (
            first.token,
            first.logprob,
            [(one.token, one.logprob) for one in first.top_logprobs],
        ) == ("one", -0.25, [("one", -0.25), ("ONE", -2.0)])
        assert list(b" two") == second.bytes
    assert streamed is not None
    assert [(t.token, t.top_logprobs) for t in streamed.content or ()] == [
        ("one", []),
        (" two", []),
    ]
    assert text.choices[0].logprobs is not None
    assert (
        text.choices[0].logprobs.text_offset,
        text.choices[0].logprobs.tokens,
    ) == ([7, 10], ["one", " two"])
    assert without.choices[0].logprobs is None


@pytest.mark.row("L08")
def test_adapters_are_models_of_their_own(client: openai.OpenAI) -> None:
    listed = [model.id for model in client.models.list().data]
    shown = client.models.retrieve("hermes_lora_doll")
    answer = client.completions.create(model="hermes_lora_sheep", prompt="INPUT lora_name")

    assert listed[:3] == ["hermes", "hermes_lora_doll", "hermes_lora_sheep"]
    assert shown.id == "hermes_lora_doll"
    assert (answer.model, answer.choices[0].text) == ("hermes_lora_sheep", "sheep")
    for name in ("hermes_lora_cow", "plain_lora_doll"):
        with pytest.raises(openai.NotFoundError) as missing:
            client.completions.create(model=name, prompt="a")
        assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
        with pytest.raises(openai.NotFoundError, match=name):
            client.models.retrieve(name)


@pytest.mark.row("L08")
@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"tools": TOOLS}, "tools"),
        ({"tools": TOOLS, "tool_choice": "required"}, "tool_choice"),
        ({"logprobs": True}, "logprobs"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"temperature": 3}, "temperature"),
    ],
)
def test_what_a_model_cannot_do_is_refused_by_its_field(
    client: openai.OpenAI, fields: Any, named: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="plain", messages=said("a"), **fields)

    assert ("invalid_request_error", named) == (refused.value.type, refused.value.param)


@pytest.mark.row("L08")
def test_an_empty_prompt_is_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model="plain", prompt="")

    assert refused.value.param == "prompt"


@pytest.mark.row("L08")
def test_a_response_is_answered(client: openai.OpenAI) -> None:
    answer = client.responses.create(
        model="plain", instructions="Repeat.", input="one two three", metadata={"a": "b"}
    )

    assert (
        answer.output_text,
        answer.status,
        answer.model,
    ) == ("one two three", "completed", "plain")
    assert (answer.instructions, answer.metadata) == ("Repeat.", {"a": "b"})
    assert answer.usage is not None
    assert (
        answer.usage.input_tokens,
        answer.usage.output_tokens,
        answer.usage.total_tokens,
    ) == (3, 3, 6)


@pytest.mark.row("L08")
def test_a_response_is_streamed(client: openai.OpenAI) -> None:
    with client.responses.stream(model="plain", input="one two three") as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()

    assert deltas == ["one", " two", " three"]
    assert (final.output_text, final.status) == ("one two three", "completed")


@pytest.mark.row("L08")
def test_a_response_calls_tools_and_gets_their_results(client: openai.OpenAI) -> None:
    tools: Any = [weather_tool()["function"] | {"type": "function"}]
    with client.responses.stream(model="hermes", input=CALLS["hermes"], tools=tools) as stream:
        message, weather, _ = stream.get_final_response().output
    again: Any = [
        {"role": "user", "content": "Weather?"},
        {"type": "function_call", **_call_of(weather)},
        {
            "type": "function_call_output",
            "call_id": _call_of(weather)["call_id"],
            "output": "sunny",
        },
    ]
    answer = client.responses.create(model="hermes", input=again, tools=tools)

    assert (message.type, weather.type) == ("message", "function_call")
    assert ("weather", json.loads(ROME)) == (
        _call_of(weather)["name"],
        json.loads(_call_of(weather)["arguments"]),
    )
    assert answer.output_text == "sunny"


def _call_of(item: Any) -> dict[str, str]:
    return {"call_id": item.call_id, "name": item.name, "arguments": item.arguments}


@pytest.mark.row("L08")
def test_a_coroutine_gets_a_response_of_a_form(server: Server) -> None:
    async def ask() -> tuple[Any, Any]:
        async with openai.AsyncOpenAI(
            base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120
        ) as client:
            parsed = await client.responses.parse(model="hermes", input=ROME, text_format=Weather)
            async with client.responses.stream(
                model="hermes", input=ROME, text_format=Weather
            ) as stream:
                streamed = await stream.get_final_response()
        return parsed.output_parsed, streamed.output_parsed

    assert (Weather(city="Rome", days=2),) * 2 == asyncio.run(ask())


@pytest.mark.row("L08")
def test_errors_of_responses_are_told(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as kept:
        client.responses.create(model="plain", input="a", previous_response_id="resp_1")
    with pytest.raises(openai.NotFoundError) as unknown:
        client.responses.create(model="nobody", input="a")
    events = list(client.responses.create(model="plain", input="one FAIL", stream=True))

    assert kept.value.param == "previous_response_id"
    assert unknown.value.code == "model_not_found"
    last = events[-1]
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert last.response.error.message == "the word is FAIL"
