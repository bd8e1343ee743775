"""The sums of tokens, as the page shows them."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from zmqtriton_addons.token_metrics.service import TokenSums


def values(sums: TokenSums) -> dict[tuple[str, str, str], float]:
    return {
        (sample.name, sample.labels["model_name"], sample.labels.get("le", "")): sample.value
        for family in text_string_to_metric_families(sums.text())
        for sample in family.samples
    }


def test_requests_of_a_version_add_up() -> None:
    sums = TokenSums()
    sums.add("chat", "1", 10, 3, 0.02, 0.05)
    sums.add("chat", "1", 4, 2, 0.3, None)

    sums_by_series = values(sums)

    assert 14 == sums_by_series["vllm:prompt_tokens_total", "chat", ""]
    assert 5 == sums_by_series["vllm:generation_tokens_total", "chat", ""]
    first = "vllm:time_to_first_token_seconds"
    assert (0, 1, 1, 2) == tuple(
        sums_by_series[f"{first}_bucket", "chat", le] for le in ("0.01", "0.02", "0.25", "0.5")
    )
    assert (2, 0.32) == (
        sums_by_series[f"{first}_count", "chat", ""],
        sums_by_series[f"{first}_sum", "chat", ""],
    )
    assert 1 == sums_by_series["vllm:time_per_output_token_seconds_count", "chat", ""]


def test_what_a_model_never_reports_has_no_series() -> None:
    sums = TokenSums()
    sums.add("story", "1", None, 3, None, None)

    assert [("vllm:generation_tokens_total", "story", "")] == list(values(sums))


def test_without_requests_there_is_no_text() -> None:
    assert "" == TokenSums().text()
