"""The defaults of a configuration."""

from __future__ import annotations

import pytest

from zmqtriton.config.model_config import apply_defaults
from zmqtriton.config.pbtxt import parse_text


@pytest.mark.row("E05")
def test_the_latest_version_is_served_unless_a_policy_is_given() -> None:
    silent = parse_text("")
    chosen = parse_text("version_policy { all {} }")

    apply_defaults(silent)
    apply_defaults(chosen)

    assert 1 == silent.version_policy.latest.num_versions
    assert "all" == chosen.version_policy.WhichOneof("policy_choice")


@pytest.mark.row("E05")
def test_full_batches_are_preferred_if_the_model_batches() -> None:
    batching = parse_text("max_batch_size: 8 dynamic_batching {}")
    single = parse_text("dynamic_batching {}")
    chosen = parse_text("max_batch_size: 8 dynamic_batching { preferred_batch_size: [2, 4] }")

    for config in (batching, single, chosen):
        apply_defaults(config)

    assert [8] == list(batching.dynamic_batching.preferred_batch_size)
    assert [] == list(single.dynamic_batching.preferred_batch_size)
    assert [2, 4] == list(chosen.dynamic_batching.preferred_batch_size)


@pytest.mark.row("E05")
def test_sequences_idle_a_second_and_the_oldest_strategy_prefers_full_batches() -> None:
    config = parse_text("max_batch_size: 8 sequence_batching { oldest {} }")
    chosen = parse_text("sequence_batching { max_sequence_idle_microseconds: 5 }")

    apply_defaults(config)
    apply_defaults(chosen)

    assert 1_000_000 == config.sequence_batching.max_sequence_idle_microseconds
    assert [8] == list(config.sequence_batching.oldest.preferred_batch_size)
    assert 5 == chosen.sequence_batching.max_sequence_idle_microseconds


@pytest.mark.row("E05")
def test_pinned_memory_is_on_unless_it_was_turned_off_and_ensembles_have_none() -> None:
    config = parse_text("optimization { input_pinned_memory { enable: false } }")
    ensemble = parse_text("ensemble_scheduling {}")

    apply_defaults(config)
    apply_defaults(ensemble)

    assert not config.optimization.input_pinned_memory.enable
    assert config.optimization.output_pinned_memory.enable
    assert not ensemble.HasField("optimization")


def test_a_second_time_changes_nothing() -> None:
    config = parse_text("max_batch_size: 8 dynamic_batching {}")
    apply_defaults(config)
    once = config.SerializeToString(deterministic=True)

    apply_defaults(config)

    assert once == config.SerializeToString(deterministic=True)
