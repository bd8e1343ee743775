"""Every table of cases, by its name, and the repositories that they are played against."""

from __future__ import annotations

from types import ModuleType

from tests.conformance.repositories import Model, Repository
from tests.conformance.tables import (
    answers,
    bls,
    configs,
    configs_strict,
    decoupled,
    ensembles,
    ensembles_optional,
    functions,
    grpc_contents,
    grpc_infer,
    grpc_server,
    grpc_stream,
    http_infer,
    http_server,
    loading,
    overrides,
    policies,
    requests,
    senders,
    sequences,
    shapes,
    tensors,
)
from tests.conformance.tables.counters import metrics, statistics
from tests.conformance.tables.http import bodies, headers, raw
from tests.conformance.tables.model_api import arguments, forks

TABLES: dict[str, ModuleType] = {
    table.__name__.rpartition(".")[2]: table
    for table in (
        tensors,
        functions,
        requests,
        arguments,
        answers,
        senders,
        decoupled,
        bls,
        forks,
        loading,
        configs,
        overrides,
        configs_strict,
        http_infer,
        http_server,
        bodies,
        shapes,
        headers,
        raw,
        policies,
        ensembles,
        ensembles_optional,
        sequences,
        grpc_contents,
        grpc_infer,
        grpc_stream,
        grpc_server,
        statistics,
        metrics,
    )
}

_DECOUPLED = "model_transaction_policy { decoupled: true }\n"
_ALL = ("--model-control-mode=explicit", "--load-model=*")

REPOSITORIES = {
    repository.name: repository
    for repository in (
        Repository(
            "main",
            (
                Model("add_sub"),
                Model("all_types"),
                Model("coded"),
                Model("coded", "coded_other"),
                Model("coded", "coded_batched", "max_batch_size: 4\n"),
                Model("coded", "coded_decoupled", _DECOUPLED),
                Model("coded_async"),
                Model("identity_fp32"),
                Model("coded_async", "coded_async_decoupled", _DECOUPLED),
            ),
            _ALL,
        ),
        Repository(
            "grpc",
            (
                Model("add_sub"),
                Model("all_types"),
                Model("coded"),
                Model("coded", "coded_decoupled", _DECOUPLED),
                Model("coded", "coded_other"),
                grpc_infer.VERSIONS,
                Model("identity_fp32", "idle"),
            ),
            _ALL,
        ),
        Repository("loading", loading.MODELS, ("--model-control-mode=explicit",)),
        Repository("configs", configs.MODELS, configs.OPTIONS),
        Repository("configs_strict", configs_strict.MODELS, configs_strict.OPTIONS),
        Repository("shapes", shapes.MODELS, shapes.OPTIONS),
        Repository("raw", raw.MODELS, raw.OPTIONS),
        Repository("policies", policies.MODELS, policies.OPTIONS),
        Repository("ensembles", ensembles.MODELS, ensembles.OPTIONS),
        Repository("ensembles_optional", ensembles_optional.MODELS, ensembles_optional.OPTIONS),
        Repository("sequences", sequences.MODELS, sequences.OPTIONS),
        Repository("statistics", (*statistics.MODELS, *metrics.MODELS), statistics.OPTIONS),
    )
}
