"""OpenAI's API as an extension of the HTTP frontend: its routes, and their description."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import falcon.asgi

from zmqtriton.sdk.frontend import (
    Gateway,
    HttpExtension,
    HttpRequest,
    JsonSchema,
    ModelVersion,
    Operation,
    Route,
    RouteDescriptions,
)
from zmqtriton_extras.openai import fields, problems
from zmqtriton_extras.openai.tensor_names import names_of

if TYPE_CHECKING:
    from zmqtriton_extras.openai.realtime import Sessions
    from zmqtriton_extras.openai.text import Texts

_CATEGORY = "openai"
#: Paths of readiness: vLLM's, and that of Triton's frontend for this API.
_HEALTH = ("/health", "/health/ready")
_JSON = "application/json"

_OPERATIONS = {
    "Texts.chat": Operation(
        "Continue a chat; with `stream` as server-sent events, the last one `[DONE]`",
        "ChatCompletionRequest",
        "ChatCompletion",
        _JSON,
    ),
    "Texts.complete": Operation(
        "Continue a text; with `stream` as server-sent events, the last one `[DONE]`",
        "CompletionRequest",
        "Completion",
        _JSON,
    ),
    "Texts.respond": Operation(
        "Continue a chat; with `stream` as server-sent events, each with its type",
        "ResponseRequest",
        "ResponseDocument",
        _JSON,
    ),
    "Realtime.converse": Operation(
        "A WebSocket: a chat in the events of OpenAI's Realtime API, as far as texts go",
        query={"model": JsonSchema.STRING},
    ),
    "Embeddings.embed": Operation(
        "A vector for each text", "EmbeddingRequest", "EmbeddingResponse", _JSON
    ),
    "Speech.speak": Operation("Say a text: a sound, as it is made", "SpeechRequest"),
    "Transcriptions.transcribe": Operation(
        "Write down a sound, the `file` of a form; with `stream` as server-sent events",
        "",
        "Transcription",
        _JSON,
    ),
    "Models.list_all": Operation(
        "All models that serve, and their adapters", "", "OpenAIModels", _JSON
    ),
    "Models.show": Operation("One model that serves", "", "OpenAIModel", _JSON),
}


_TEXT = "a few words of text"


def _chat(model: ModelVersion) -> dict[str, Any] | None:
    if not names_of(model).makes_chats:
        return None
    return {"model": model.name, "messages": [{"role": "user", "content": _TEXT}]}


def _response(model: ModelVersion) -> dict[str, Any] | None:
    return {"model": model.name, "input": _TEXT} if names_of(model).makes_chats else None


def _completion(model: ModelVersion) -> dict[str, Any] | None:
    return {"model": model.name, "prompt": _TEXT} if names_of(model).makes_texts else None


def _embedding(model: ModelVersion) -> dict[str, Any] | None:
    return {"model": model.name, "input": [_TEXT]} if names_of(model).makes_embeddings else None


def _speech(model: ModelVersion) -> dict[str, Any] | None:
    return {"model": model.name, "input": _TEXT} if names_of(model).makes_sounds else None


_EXAMPLES: dict[str, Callable[[ModelVersion], dict[str, Any] | None]] = {
    "Texts.chat": _chat,
    "Texts.complete": _completion,
    "Texts.respond": _response,
    "Embeddings.embed": _embedding,
    "Speech.speak": _speech,
}


def _number(values: fields.Range) -> dict[str, Any]:
    kind = "integer" if values.is_integer else "number"
    return {"type": kind, "description": f"{values.text[0].upper()}{values.text[1:]}."}


_TEXTS = {
    "type": ["string", "array"],
    "items": JsonSchema.STRING,
    "description": "One, or a list of them.",
}
_ANY = {"type": "object"}
_USAGE = JsonSchema.object_of(
    {
        "prompt_tokens": JsonSchema.COUNT,
        "completion_tokens": JsonSchema.COUNT,
        "total_tokens": JsonSchema.COUNT,
    },
    "prompt_tokens",
    "total_tokens",
)
_SAMPLING: dict[str, Any] = {
    **{field: _number(values) for field, values in fields.SAMPLING.items()},
    **dict.fromkeys(fields.FLAGS, JsonSchema.BOOLEAN),
    "stop": _TEXTS,
    "logit_bias": {"type": "object", "description": "By the numbers of tokens, from -100 to 100."},
}
_COMMON: dict[str, Any] = {
    **_SAMPLING,
    "stream": JsonSchema.BOOLEAN,
    "stream_options": JsonSchema.object_of({"include_usage": JsonSchema.BOOLEAN}),
    "n": JsonSchema.COUNT,
    "response_format": JsonSchema.object_of(
        {"type": JsonSchema.STRING, "json_schema": _ANY}, "type"
    ),
}
_TOOLS: dict[str, Any] = {
    "tools": JsonSchema.array_of(_ANY),
    "tool_choice": {"type": ["string", "object"]},
    "parallel_tool_calls": JsonSchema.BOOLEAN,
    "top_logprobs": _number(fields.TOP_LOGPROBS),
}
_MESSAGE = JsonSchema.object_of(
    {
        "role": JsonSchema.STRING,
        "content": {"type": ["string", "array", "null"], "items": _ANY},
        "tool_calls": JsonSchema.array_of(_ANY),
    },
    "role",
)


def _answer(choice: dict[str, Any]) -> dict[str, Any]:
    choice = {"index": JsonSchema.COUNT, **choice, "finish_reason": JsonSchema.STRING}
    return JsonSchema.object_of(
        {
            "id": JsonSchema.STRING,
            "object": JsonSchema.STRING,
            "created": JsonSchema.COUNT,
            "model": JsonSchema.STRING,
            "choices": JsonSchema.array_of(JsonSchema.object_of(choice, "index")),
            "usage": JsonSchema.named("Usage"),
        },
        "id",
        "object",
        "created",
        "model",
        "choices",
    )


_SCHEMAS: dict[str, Any] = {
    "OpenAIError": JsonSchema.object_of(
        {
            "error": JsonSchema.object_of(
                {
                    "message": JsonSchema.STRING,
                    "type": JsonSchema.STRING,
                    "param": {"type": ["string", "null"]},
                    "code": {"type": ["string", "null"]},
                },
                "message",
                "type",
                "param",
                "code",
            )
        },
        "error",
    ),
    "Usage": _USAGE,
    "ChatCompletionRequest": JsonSchema.object_of(
        {
            "model": JsonSchema.STRING,
            "messages": JsonSchema.array_of(_MESSAGE),
            "logprobs": JsonSchema.BOOLEAN,
            **_TOOLS,
            **_COMMON,
        },
        "model",
        "messages",
    ),
    "ChatCompletion": _answer({"message": _MESSAGE}),
    "CompletionRequest": JsonSchema.object_of(
        {
            "model": JsonSchema.STRING,
            "prompt": _TEXTS,
            "echo": JsonSchema.BOOLEAN,
            "logprobs": _number(fields.COMPLETION_LOGPROBS),
            **_COMMON,
        },
        "model",
        "prompt",
    ),
    "Completion": _answer({"text": JsonSchema.STRING}),
    "ResponseRequest": JsonSchema.object_of(
        {
            "model": JsonSchema.STRING,
            "input": {"type": ["string", "array"], "items": _ANY},
            "instructions": JsonSchema.STRING,
            "max_output_tokens": JsonSchema.COUNT,
            "text": JsonSchema.object_of({"format": _ANY}),
            "stream": JsonSchema.BOOLEAN,
            **_TOOLS,
            **_SAMPLING,
        },
        "model",
        "input",
    ),
    "ResponseDocument": JsonSchema.object_of(
        {
            "id": JsonSchema.STRING,
            "object": JsonSchema.STRING,
            "created_at": JsonSchema.COUNT,
            "status": JsonSchema.STRING,
            "model": JsonSchema.STRING,
            "output": JsonSchema.array_of(_ANY),
            "usage": _ANY,
        },
        "id",
        "object",
        "status",
        "model",
        "output",
    ),
    "EmbeddingRequest": JsonSchema.object_of(
        {
            "model": JsonSchema.STRING,
            "input": _TEXTS,
            "encoding_format": {"type": "string", "enum": ["float", "base64"]},
        },
        "model",
        "input",
    ),
    "EmbeddingResponse": JsonSchema.object_of(
        {
            "object": JsonSchema.STRING,
            "model": JsonSchema.STRING,
            "data": JsonSchema.array_of(
                JsonSchema.object_of(
                    {
                        "object": JsonSchema.STRING,
                        "index": JsonSchema.COUNT,
                        "embedding": {"type": ["array", "string"], "items": {"type": "number"}},
                    },
                    "object",
                    "index",
                    "embedding",
                )
            ),
            "usage": JsonSchema.named("Usage"),
        },
        "object",
        "data",
        "model",
        "usage",
    ),
    "SpeechRequest": JsonSchema.object_of(
        {
            "model": JsonSchema.STRING,
            "input": JsonSchema.STRING,
            "voice": JsonSchema.STRING,
            "instructions": JsonSchema.STRING,
            "response_format": {"type": "string", "enum": ["wav", "pcm"]},
        },
        "model",
        "input",
    ),
    "Transcription": JsonSchema.object_of(
        {
            "text": JsonSchema.STRING,
            "task": JsonSchema.STRING,
            "language": JsonSchema.STRING,
            "duration": {"type": ["number", "null"]},
        },
        "text",
    ),
    "OpenAIModel": JsonSchema.object_of(
        {
            "id": JsonSchema.STRING,
            "object": JsonSchema.STRING,
            "created": JsonSchema.COUNT,
            "owned_by": JsonSchema.STRING,
        },
        "id",
        "object",
        "created",
        "owned_by",
    ),
    "OpenAIModels": JsonSchema.object_of(
        {
            "object": JsonSchema.STRING,
            "data": JsonSchema.array_of(JsonSchema.named("OpenAIModel")),
        },
        "object",
        "data",
    ),
}

DESCRIPTIONS = RouteDescriptions(_OPERATIONS, _EXAMPLES, _SCHEMAS, "OpenAIError")


class Realtime:
    """The responder of WebSockets; its modules are loaded by the first client."""

    def __init__(self, gateway: Gateway, texts: Texts) -> None:
        self._parts = gateway, texts
        self._sessions: Sessions | None = None

    async def converse(self, req: HttpRequest, resp: falcon.asgi.Response) -> None:
        if self._sessions is None:
            from zmqtriton_extras.openai.realtime import Sessions

            self._sessions = Sessions(*self._parts)
        await self._sessions.converse(req, resp)


def routes(gateway: Gateway) -> list[Route]:
    """Return the routes; a restriction of `inference` or `metadata` also applies to them."""
    # only now: a server without the API need not load it
    from zmqtriton_extras.openai.calls import Models
    from zmqtriton_extras.openai.embeddings import Embeddings
    from zmqtriton_extras.openai.speech import Speech
    from zmqtriton_extras.openai.text import Texts
    from zmqtriton_extras.openai.transcriptions import Transcriptions

    transcribe = Transcriptions(gateway).transcribe
    texts, embeddings, models = Texts(gateway), Embeddings(gateway), Models(gateway)
    return [
        Route("POST", "/v1/chat/completions", _CATEGORY, texts.chat, "inference"),
        Route("POST", "/v1/completions", _CATEGORY, texts.complete, "inference"),
        Route("POST", "/v1/responses", _CATEGORY, texts.respond, "inference"),
        Route("GET", "/v1/realtime", _CATEGORY, Realtime(gateway, texts).converse, "inference"),
        Route("POST", "/v1/embeddings", _CATEGORY, embeddings.embed, "inference"),
        Route("POST", "/v1/audio/speech", _CATEGORY, Speech(gateway).speak, "inference"),
        Route("POST", "/v1/audio/transcriptions", _CATEGORY, transcribe, "inference"),
        Route("GET", "/v1/models", _CATEGORY, models.list_all, "metadata"),
        Route("GET", "/v1/models/{model:name}", _CATEGORY, models.show, "metadata"),
    ]


def _routes(gateway: Gateway) -> Sequence[Route]:
    return routes(gateway) if gateway.settings.option("allow_openai") else ()


def _with_health(gateway: Gateway, table: list[Route]) -> Sequence[Route]:
    """Return the table with health routes by the paths of other OpenAI servers."""
    if not gateway.settings.option("allow_openai"):
        return table
    ready = next(route for route in table if route.path == "/v2/health/ready")
    return [*table, *(ready._replace(path=path) for path in _HEALTH)]


def _descriptions(gateway: Gateway) -> RouteDescriptions:
    return DESCRIPTIONS if gateway.settings.option("allow_openai") else RouteDescriptions()


EXTENSION = HttpExtension(
    _routes, problems.PREFIX, problems.Form(), _descriptions, around=_with_health
)
