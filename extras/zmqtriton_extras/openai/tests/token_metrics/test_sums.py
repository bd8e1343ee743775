"""The sums of tokens, as the page shows them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from zmqtriton_extras.openai.token_metrics.allowances import Counted
from zmqtriton_extras.openai.token_metrics.process import TokenSums
from zmqtriton_extras.openai.token_metrics.step import estimate
from zmqtriton_floor.datatypes import BYTES
from zmqtriton_floor.tensors import encode_bytes
from zmqtriton_floor.wire import Tensor


def values(sums: TokenSums) -> dict[tuple[str, str, str], float]:
    return {
        (sample.name, sample.labels["model_name"], sample.labels.get("le", "")): sample.value
        for family in text_string_to_metric_families(sums.text())
        for sample in family.samples
        if sample.name.startswith("vllm:")
    }


def test_requests_of_a_version_add_up() -> None:
    sums = TokenSums()
    sums.add(Counted("chat", "1", 10, 3, 0.02, 0.05))
    sums.add(Counted("chat", "1", 4, 2, 0.3))

    sums_by_series = values(sums)

    assert sums_by_series["vllm:prompt_tokens_total", "chat", ""] == 14
    assert sums_by_series["vllm:generation_tokens_total", "chat", ""] == 5
    first = "vllm:time_to_first_token_seconds"
    assert tuple(
        sums_by_series[f"{first}_bucket", "chat", le] for le in ("0.01", "0.02", "0.25", "0.5")
    ) == (0, 1, 1, 2)
    assert (
        sums_by_series[f"{first}_count", "chat", ""],
        sums_by_series[f"{first}_sum", "chat", ""],
    ) == (2, 0.32)
    assert sums_by_series["vllm:time_per_output_token_seconds_count", "chat", ""] == 1


@pytest.mark.parametrize(("told", "whole", "counted"), [(3, 5, 5), (5, 4, 5)])
def test_what_was_told_of_an_open_stream_counts_once(told: int, whole: int, counted: int) -> None:
    sums = TokenSums()
    sums.add_made("chat", "1", told)
    sums.add(Counted("chat", "1", None, whole, told=told))

    assert {"chat:1": counted} == json.loads(sums.made())
    assert f'gen_ai_token_type="output"}} {whole}' in sums.text()


def test_what_a_model_never_reports_has_no_series() -> None:
    sums = TokenSums()
    sums.add(Counted("story", "1", None, 3))

    assert list(values(sums)) == [("vllm:generation_tokens_total", "story", "")]


def test_without_requests_there_is_no_text() -> None:
    assert TokenSums().text() == ""


def test_opentelemetrys_names_are_beside_them() -> None:
    sums = TokenSums()
    sums.add(Counted("chat", "1", 10, 3, 0.02, 0.05))

    (usage,) = (
        family
        for family in text_string_to_metric_families(sums.text())
        if family.name == "gen_ai_client_token_usage"
    )

    labels = {
        "gen_ai_operation_name": "text_completion",
        "gen_ai_provider_name": "zmqtriton",
        "gen_ai_request_model": "chat",
        "gen_ai_response_model": "chat:1",
    }
    assert [
        (sample.labels.pop("gen_ai_token_type"), sample.value)
        for sample in usage.samples
        if sample.name.endswith("_sum")
    ] == [("input", 10.0), ("output", 3.0)]
    assert [labels, labels] == [s.labels for s in usage.samples if s.name.endswith("_sum")]


def test_tokens_of_a_bearer_token_are_by_its_name_and_model() -> None:
    sums = TokenSums()
    sums.add(Counted("chat", "1", 10, 3, token="desk"))
    sums.add(Counted("chat", "2", 10, 2, token="desk"))
    sums.add(Counted("chat", "1", 10, 3))
    sums.refuse("desk")

    lines = sums.text().splitlines()

    for line in (
        'zmqtriton_token_usage_total{token="desk",model="chat",kind="prompt"} 20',
        'zmqtriton_token_usage_total{token="desk",model="chat",kind="generated"} 5',
        'zmqtriton_token_usage_refused_total{token="desk"} 1',
    ):
        assert line in lines


def test_the_oldest_series_of_too_many_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zmqtriton_extras.openai.token_metrics.process._MAX_SERIES", 2)
    sums = TokenSums()

    for name in ("a", "b", "c"):
        sums.add(Counted(name, "1", None, 1))

    assert json.loads(sums.made()) == {"b:1": 1, "c:1": 1}


def test_a_version_whose_engine_reports_itself_has_no_second_series_of_vllms_names() -> None:
    sums = TokenSums()
    sums.add(Counted("plain", "1", 10, 3, 0.02, 0.05))
    sums.add(Counted("engine", "1", 10, 3, 0.02, 0.05, is_reported=True))

    assert {"plain"} == {model for _, model, _ in values(sums)}
    assert json.loads(sums.made()) == {"plain:1": 3, "engine:1": 3}
    assert 'gen_ai_request_model="engine"' in sums.text()


def test_the_texts_of_a_very_large_answer_count_as_one() -> None:
    texts = [b"four"] * 3
    small, large = (
        Tensor("text_output", BYTES, [count * 3], encode_bytes(np.array(texts * count, np.object_)))
        for count in (1, 70_000)
    )

    assert estimate(small) == 3
    assert (len(large.data) - 4 + 3) // 4 == estimate(large)
