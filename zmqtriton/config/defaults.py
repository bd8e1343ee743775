"""Completes what a configuration leaves open, except instance groups (see `instances`).

Runs after the backend is known, and again after a model's own auto-completion. Changes the message
in place and never overwrites what somebody has set.
"""

from __future__ import annotations

from typing import Any

SEQUENCE_IDLE_US = 1_000_000


def apply_defaults(config: Any) -> None:
    """Set version policy, preferred batch sizes, sequence idle time and pinned memory."""
    if not config.HasField("version_policy"):
        config.version_policy.latest.num_versions = 1
    if config.HasField("dynamic_batching"):
        _prefer_full_batches(config.dynamic_batching, config.max_batch_size)
    if config.HasField("sequence_batching"):
        batching = config.sequence_batching
        batching.max_sequence_idle_microseconds = (
            batching.max_sequence_idle_microseconds or SEQUENCE_IDLE_US
        )
        if batching.HasField("oldest"):
            _prefer_full_batches(batching.oldest, config.max_batch_size)
    # An ensemble must not have the section at all, so it gets no default of it either.
    if not config.HasField("ensemble_scheduling"):
        for memory in ("input_pinned_memory", "output_pinned_memory"):
            if not config.optimization.HasField(memory):
                getattr(config.optimization, memory).enable = True


def _prefer_full_batches(batching: Any, max_batch_size: int) -> None:
    if not batching.preferred_batch_size and max_batch_size > 0:
        batching.preferred_batch_size.append(max_batch_size)
