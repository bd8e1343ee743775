from __future__ import annotations

import pytest

from tests.frontends.http_api.fakes import FakeGateway
from tests.frontends.http_api.text_models import text_model
from tests.standard.cockpit.test_description import described, operations
from zmqtriton_extras.openai.embeddings import read as read_embedding
from zmqtriton_extras.openai.requests import read_chat, read_completion
from zmqtriton_extras.openai.responses import read_response

pytestmark = pytest.mark.slow


def test_all_that_infers_takes_a_timeout() -> None:
    timed = {
        path
        for path, _, operation in operations(described(FakeGateway(allow_openai=True)))
        if "X-Request-Timeout" in [one["name"] for one in operation.get("parameters", ())]
    }

    names = ("chat/completions", "completions", "responses", "embeddings")
    assert {f"/v1/{name}" for name in names} <= timed


def test_models_of_texts_and_vectors_have_examples_for_openai_s_clients() -> None:
    gateway = FakeGateway(allow_openai=True)
    gateway.catalogue.update(text_model("texts", model_transaction_policy={"decoupled": True}))
    gateway.catalogue.update(text_model("vectors", outputs=(("embedding", "FP32"),)))
    document = described(gateway)

    chats, texts, responses, vectors = (
        document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["examples"]
        for path in (
            "/v1/chat/completions",
            "/v1/completions",
            "/v1/responses",
            "/v1/embeddings",
        )
    )

    assert [read_chat(one["value"]).model for one in chats.values()] == ["texts"]
    assert [read_completion(one["value"]).model for one in texts.values()] == ["texts"]
    read = [read_response(one["value"]).text.model for one in responses.values()]
    assert read == ["texts"]
    assert [read_embedding(one["value"]).model for one in vectors.values()] == ["vectors"]


def test_without_openai_s_api_nothing_of_it_is_described() -> None:
    document = described(FakeGateway())

    assert not any(path.startswith("/v1") for path in document["paths"])
    assert "OpenAIError" not in document["components"]["schemas"]
