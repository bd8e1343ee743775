"""OpenAI's API over models that make text, embeddings or speech."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from zmqtriton.sdk import AddOn, Offer, Option, Parameter, Process


class OpenaiOptions(NamedTuple):
    allow_openai: Annotated[
        bool,
        Option(
            "Serve OpenAI's API at /v1: chats, tools, structured outputs, embeddings, audio.",
            group="HTTP",
        ),
    ] = False
    token_metrics: Annotated[
        bool,
        Option(
            "Count tokens and their times of models that make text, by vLLM's names.",
            group="Metrics",
        ),
    ] = False


ADDON = AddOn(
    "openai",
    title="OpenAI's API",
    needs=(
        "routes",
        "web_sockets",
        "generate",
        "metrics",
    ),
    after=("generate",),
    options=OpenaiOptions,
    parameters={
        "openai_text_input": Parameter(
            "name of a tensor of type STRING", "`text_input`", "The prompt."
        ),
        "openai_messages_input": Parameter(
            "name of a tensor of type STRING",
            "",
            "The messages of a chat, as JSON, in place of the prompt.",
        ),
        "openai_stream_input": Parameter(
            "name of a tensor of type BOOL",
            "`stream`",
            "Several responses are welcome; false if the model is not decoupled.",
        ),
        "openai_sampling_parameters_input": Parameter(
            "name of a tensor of type STRING",
            "`sampling_parameters`",
            "A JSON object: temperature, limits and the like.",
        ),
        "openai_exclude_input": Parameter(
            "name of a tensor of type BOOL", "`exclude_input_in_output`", "Always true."
        ),
        "openai_tools_input": Parameter(
            "name of a tensor of type STRING", "`tools`", "The tools of a chat, as JSON."
        ),
        "openai_tool_choice_input": Parameter(
            "name of a tensor of type STRING",
            "`tool_choice`",
            "Which of them are to be called, as JSON.",
        ),
        "openai_response_format_input": Parameter(
            "name of a tensor of type STRING", "`response_format`", "The form of the text, as JSON."
        ),
        "openai_lora_input": Parameter(
            "name of a tensor of type STRING",
            "`lora_name`",
            "The adapter; without this input a member of `sampling_parameters`.",
        ),
        "openai_audio_input": Parameter(
            "name of a tensor of type STRING", "`audio`", "A sound to write down, as it was sent."
        ),
        "openai_text_output": Parameter(
            "name of a tensor of type STRING",
            "`text_output`",
            "An element for each choice; of several responses each has its new part.",
        ),
        "openai_message_output": Parameter(
            "name of a tensor of type STRING",
            "",
            "For each choice a message in place of the text: a JSON object with `content`, and "
            "perhaps `tool_calls`.",
        ),
        "openai_finish_reason_output": Parameter(
            "name of a tensor of type STRING",
            "`finish_reason`",
            "`stop`, `length` and the like; `None` in a response after which others come.",
        ),
        "openai_prompt_tokens_output": Parameter(
            "name of a tensor of type integer", "`num_input_tokens`", "Tokens of the prompt."
        ),
        "openai_completion_tokens_output": Parameter(
            "name of a tensor of type integer",
            "`num_output_tokens`",
            "Tokens made; those of all responses are added.",
        ),
        "openai_logprobs_output": Parameter(
            "name of a tensor of type STRING",
            "`logprobs`",
            "For each choice a JSON list of its new tokens, as in Triton's vLLM backend: objects "
            "of alternatives by their numbers, the taken one first: "
            '`[{"791": {"decoded_token": "The", "logprob": -0.1, "rank": 1}}]`.',
        ),
        "openai_tool_calls_output": Parameter(
            "name of a tensor of type STRING",
            "`tool_calls`",
            "For each choice a JSON list of its new calls: objects with `name` and `arguments`.",
        ),
        "openai_embedding_output": Parameter("name of a tensor", "`embedding`", "The vectors."),
        "openai_audio_output": Parameter(
            "name of a tensor of type STRING",
            "`audio`",
            "A sound as a WAV file of 16 bits; of several responses each has its next part.",
        ),
        "openai_chat_template": Parameter(
            "file in the model's directory",
            "`chat_template.jinja`",
            "The template that makes a prompt of a chat.",
        ),
        "openai_chat_template_variables": Parameter(
            "JSON object", "`{}`", "What the template finds besides the messages."
        ),
        "openai_tool_call_parser": Parameter(
            "`hermes`, `llama3_json` or `mistral`",
            "",
            "The form in which the model writes calls of tools. With tools and `hermes` or "
            "`mistral`, `skip_special_tokens` is false unless the client sets it.",
        ),
        "openai_structured_outputs_key": Parameter(
            "member of `sampling_parameters`",
            "",
            "The form of the text, as Triton's vLLM backend takes it.",
        ),
        "openai_lora_adapters": Parameter("names", "", "Adapters that clients may name."),
        "openai_lora_separator": Parameter(
            "text", "`_lora_`", "Between the names of model and adapter."
        ),
    },
    process=Process(
        ".token_metrics.process",
        on="token-metrics",
        name="token_metrics",
        title="Token metrics",
        is_serving=True,
    ),
    offers={
        "models.example": ".json_inputs:json_example",
        "run.requests": ".json_inputs:requests",
        "metrics.tokens": Offer(".token_metrics.texts", on="token-metrics"),
        "protocol.extension": Offer("openai", on="allow-openai"),
        "http.extension": ".extension:EXTENSION",
        "http.category": "openai",
        "models.file": Offer(".template_file:CHAT_TEMPLATE", on="allow-openai"),
        "requests.step": Offer(".token_metrics.step:count_tokens_of", on="token-metrics"),
        "metrics.text": Offer(".token_metrics.figures:metrics", on="token-metrics"),
    },
)
