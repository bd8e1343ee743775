"""Texts of the description of OpenAI's API: what openapi_text.py has for the core."""

from __future__ import annotations

from typing import Any

from zmqtriton_addons.web_apis.openai.tensor_names import TensorNames
from zmqtriton_frontends.http_api import (
    BOOLEAN,
    COUNT,
    STRING,
    Example,
    Operation,
    RouteDescriptions,
    array_of,
    object_of,
    schema_named,
)
from zmqtriton_frontends.inference import ModelVersion

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
    "Embeddings.embed": Operation(
        "A vector for each text", "EmbeddingRequest", "EmbeddingResponse", _JSON
    ),
    "Models.list_all": Operation("All models that serve", "", "OpenAIModels", _JSON),
    "Models.show": Operation("One model that serves", "", "OpenAIModel", _JSON),
}


_TEXT = "a few words of text"


def _chat(model: ModelVersion) -> dict[str, Any] | None:
    if not _names(model).makes_chats:
        return None
    return {"model": model.name, "messages": [{"role": "user", "content": _TEXT}]}


def _completion(model: ModelVersion) -> dict[str, Any] | None:
    return {"model": model.name, "prompt": _TEXT} if _names(model).makes_texts else None


def _embedding(model: ModelVersion) -> dict[str, Any] | None:
    return {"model": model.name, "input": [_TEXT]} if _names(model).makes_embeddings else None


def _names(model: ModelVersion) -> TensorNames:
    return TensorNames(model.config, model.signature)


_EXAMPLES: dict[str, Example] = {
    "Texts.chat": _chat,
    "Texts.complete": _completion,
    "Embeddings.embed": _embedding,
}


_NUMBER = {"type": "number"}
_TEXTS = {"type": ["string", "array"], "description": "One, or a list of them."}
_USAGE = object_of(
    {"prompt_tokens": COUNT, "completion_tokens": COUNT, "total_tokens": COUNT},
    *("prompt_tokens", "total_tokens"),
)
_SAMPLING = {
    "stream": BOOLEAN,
    "stream_options": object_of({"include_usage": BOOLEAN}),
    "n": COUNT,
    "max_tokens": COUNT,
    "stop": _TEXTS,
    "seed": {"type": "integer"},
    "temperature": _NUMBER,
    "top_p": _NUMBER,
    "frequency_penalty": _NUMBER,
    "presence_penalty": _NUMBER,
}
_MESSAGE = object_of(
    {"role": STRING, "content": {"type": ["string", "array"]}}, *("role", "content")
)


def _answer(choice: dict[str, Any]) -> dict[str, Any]:
    choice = {"index": COUNT, **choice, "finish_reason": STRING}
    return object_of(
        {
            "id": STRING,
            "object": STRING,
            "created": COUNT,
            "model": STRING,
            "choices": array_of(object_of(choice, "index")),
            "usage": schema_named("Usage"),
        },
        *("id", "object", "created", "model", "choices"),
    )


_SCHEMAS: dict[str, Any] = {
    "OpenAIError": object_of(
        {
            "error": object_of(
                {
                    "message": STRING,
                    "type": STRING,
                    "param": {"type": ["string", "null"]},
                    "code": {"type": ["string", "null"]},
                },
                *("message", "type", "param", "code"),
            )
        },
        "error",
    ),
    "Usage": _USAGE,
    "ChatCompletionRequest": object_of(
        {"model": STRING, "messages": array_of(_MESSAGE), **_SAMPLING}, "model", "messages"
    ),
    "ChatCompletion": _answer({"message": _MESSAGE}),
    "CompletionRequest": object_of(
        {"model": STRING, "prompt": _TEXTS, "echo": BOOLEAN, **_SAMPLING}, "model", "prompt"
    ),
    "Completion": _answer({"text": STRING}),
    "EmbeddingRequest": object_of(
        {
            "model": STRING,
            "input": _TEXTS,
            "encoding_format": {"type": "string", "enum": ["float", "base64"]},
        },
        *("model", "input"),
    ),
    "EmbeddingResponse": object_of(
        {
            "object": STRING,
            "model": STRING,
            "data": array_of(
                object_of(
                    {
                        "object": STRING,
                        "index": COUNT,
                        "embedding": {"type": ["array", "string"]},
                    },
                    *("object", "index", "embedding"),
                )
            ),
            "usage": schema_named("Usage"),
        },
        *("object", "data", "model", "usage"),
    ),
    "OpenAIModel": object_of(
        {"id": STRING, "object": STRING, "created": COUNT, "owned_by": STRING},
        *("id", "object", "created", "owned_by"),
    ),
    "OpenAIModels": object_of(
        {"object": STRING, "data": array_of(schema_named("OpenAIModel"))}, "object", "data"
    ),
}

DESCRIPTIONS = RouteDescriptions(_OPERATIONS, _EXAMPLES, _SCHEMAS, "OpenAIError")
