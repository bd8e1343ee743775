"""OpenAI's API over models that make text or embeddings."""

from __future__ import annotations

from zmqtriton.sdk import AddOn, Process

ADDON = AddOn(
    "openai",
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
