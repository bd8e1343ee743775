"""OpenAI's API over models that make text or embeddings."""

from __future__ import annotations

from zmqtriton.sdk import AddOn, Option, Process

ADDON = AddOn(
    "openai",
    options=(
        Option(
            "allow-openai",
            bool,
            False,
            "Serve OpenAI's API at /v1: chat completions, completions, embeddings and models.",
            group="HTTP",
        ),
        Option(
            "token-metrics",
            bool,
            False,
            "Count tokens and their times of models that make text, by vLLM's names.",
            group="Metrics",
        ),
    ),
    example=".json_inputs:json_example",
    tokens=".token_metrics.texts",
    extension="openai",
    extension_on="allow-openai",
    http=(".extension:EXTENSION",),
    step=".token_metrics.step:count_tokens_of",
    process=Process(
        ".token_metrics.process",
        on="token-metrics",
        name="token_metrics",
        title="Token metrics",
        is_serving=True,
    ),
    metrics=".token_metrics.figures:metrics",
    after=("generate", "clouds"),
    needs=("web_sockets",),
)
