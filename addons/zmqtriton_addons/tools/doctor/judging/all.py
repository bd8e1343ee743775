"""All judgements, and the order of what they find."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from zmqtriton.findings import Finding, Severity
from zmqtriton_addons.tools.doctor.facts import Facts
from zmqtriton_addons.tools.doctor.judging import (
    files,
    limits,
    memory,
    programs,
    services,
    unread,
)

JUDGEMENTS: tuple[Callable[[Facts], Iterable[Finding]], ...] = (
    services.judge_options,
    services.judge_ports,
    services.judge_models,
    services.judge_stopped_processes,
    services.judge_stub_users,
    services.judge_units,
    services.judge_proxies,
    services.judge_home,
    files.judge_repositories,
    files.judge_runtime_directories,
    files.judge_certificates,
    files.judge_secret_files,
    files.judge_environment_cache,
    files.judge_log,
    files.judge_temporary,
    programs.judge_model_pythons,
    programs.judge_packages,
    programs.judge_installations,
    programs.judge_interpreter,
    programs.judge_gpu,
    limits.judge_kernel,
    limits.judge_descriptor_limit,
    limits.judge_descriptors_in_use,
    limits.judge_process_limit,
    limits.judge_locked_memory,
    limits.judge_clock,
    memory.judge_memory,
    memory.judge_overcommit,
    memory.judge_swap,
    memory.judge_shared_memory,
    memory.judge_cores,
    unread.judge_unread,
)
_ORDER = list(Severity)


def judge(facts: Facts) -> list[Finding]:
    """Return all findings, the most important first."""
    found = [finding for judgement in JUDGEMENTS for finding in judgement(facts)]
    return sorted(found, key=lambda finding: _ORDER.index(finding.severity))
