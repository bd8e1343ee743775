"""Configurations of models as Triton is told them; cache, warm-up, versions, access."""

from __future__ import annotations

from tests.conformance.cases import Case, Http, Request, get, infer, post, tensor

SCRIPTS = ("configured",)
TOKEN = {"triton-access-token": "secret"}
CONFIGURATIONS = (
    "default",
    "unbatched",
    "batch_of_16",
    "no_batcher",
    "delayed",
    "ordered",
    "priorities",
    "cached",
    "decoupled",
    "batcher_without_batches",
    "shapes",
    "instances",
)


def ask(model: str, *values: float) -> Http:
    return infer(model, tensor("a", "FP32", list(values)))


def case(name: str, request: Request | tuple[Request, ...], why: str, row: str = "J04") -> Case:
    return Case(name, request, row, why)


CASES = (
    *(
        case(f"configuration_{name}", get(f"/v2/models/config_{name}/config"), "as Triton has it")
        for name in CONFIGURATIONS
    ),
    case("metadata_of_a_model", get("/v2/models/config_shapes"), "with the batch"),
    case("metadata_of_instances", get("/v2/models/config_instances"), "nothing of them"),
    case("version_three", ask("version/versions/3", 1.0), "is served", "J02"),
    case("version_three_by_itself", ask("version", 1.0), "is the latest", "J02"),
    case("version_one_of_three", ask("version/versions/1", 1.0), "does not exist", "J02"),
    case("version_is_described", get("/v2/models/version"), "its number", "J02"),
    case("name_with_dots_and_lines", ask("with.dots-and_lines", 1.0), "is served", "J02"),
    case("name_in_capitals", ask("UPPER", 1.0), "is served", "J02"),
    case("name_in_other_letters", ask("upper", 1.0), "is another", "J02"),
    case("calls_are_counted", (ask("counting", 5.0), ask("counting", 5.0)), "each is one"),
    case(
        "cached_calls",
        (ask("counting_cached", 5.0), ask("counting_cached", 5.0), ask("counting_cached", 6.0)),
        "the second is answered by the cache",
    ),
    case("warmed_by_zeros", ask("warmed_with_zeros", 2.0), "two calls on the main thread", "J05"),
    case("warmed_by_chance", ask("warmed_at_random", 2.0), "two calls", "J05"),
    case("warmed_by_two", ask("warmed_twice", 2.0), "four calls", "J05"),
    case("warmed_by_nothing", ask("warmed_with_nothing", 2.0), "logged, not raised", "J05"),
    case("warmed_without_rounds", ask("warmed_without_rounds", 2.0), "no call", "J05"),
    case(
        "warmup_is_not_configured",
        get("/v2/models/warmed_with_zeros/config"),
        "it is the package's",
        "J05",
    ),
    # --------------------------------------------------------------------- access
    case("statistics_without_a_token", get("/v2/models/counting/stats"), "refused", "J31"),
    case(
        "statistics_with_a_wrong_token",
        get("/v2/models/counting/stats", {"triton-access-token": "x"}),
        "refused",
        "J31",
    ),
    case("index_without_a_token", post("/v2/repository/index"), "refused", "J31"),
    case("load_without_a_token", post("/v2/repository/models/counting/load"), "refused", "J31"),
    case("unload_without_a_token", post("/v2/repository/models/counting/unload"), "refused", "J31"),
    case("logging_without_a_token", get("/v2/logging"), "refused", "J31"),
    case("tracing_without_a_token", get("/v2/trace/setting"), "refused", "J31"),
    case("memory_without_a_token", get("/v2/systemsharedmemory/status"), "refused", "J31"),
    case(
        "memory_with_a_token", get("/v2/systemsharedmemory/status", TOKEN), "there is none", "J31"
    ),
    case("health_without_a_token", get("/v2/health/ready"), "is for everybody", "J31"),
    case(
        "unload_with_a_token",
        (post("/v2/repository/models/UPPER/unload", {}, headers=TOKEN), ask("UPPER", 1.0)),
        "is gone",
        "J31",
    ),
)
