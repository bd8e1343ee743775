"""Everything over HTTP that is no inference: health, metadata, control, memory, settings, paths."""

from __future__ import annotations

from tests.conformance.cases import Case, Http, Rpc, get, infer, post, tensor

REPOSITORY = "main"
INDEX = "/v2/repository/index"
LOAD = "/v2/repository/models/{}/load"
UNLOAD = "/v2/repository/models/{}/unload"
SYSTEM = "/v2/systemsharedmemory"
REGION = SYSTEM + "/region/conformance_r"
TRACE = "/v2/trace/setting"
LOGGING = "/v2/logging"

CASES = (
    # ---------------------------------------------------------------------- health
    Case("live", get("/v2/health/live"), "C01", "alive"),
    Case("ready", get("/v2/health/ready"), "C02", "ready"),
    Case("live_with_post", post("/v2/health/live"), "C01", "the wrong method"),
    Case("ready_of_a_model", get("/v2/models/add_sub/ready"), "C03", "ready"),
    Case("ready_of_a_version", get("/v2/models/add_sub/versions/1/ready"), "C03", "ready"),
    Case("ready_of_an_unknown_model", get("/v2/models/unknown/ready"), "C03", "unknown"),
    Case(
        "ready_of_an_unknown_version", get("/v2/models/add_sub/versions/9/ready"), "C03", "unknown"
    ),
    Case("health_over_grpc", Rpc("ServerReady"), "D01", "ready"),
    Case("live_over_grpc", Rpc("ServerLive"), "D01", "alive"),
    Case("ready_of_a_model_over_grpc", Rpc("ModelReady", 'name: "add_sub"'), "D02", "ready"),
    Case("ready_of_an_unknown_model_over_grpc", Rpc("ModelReady", 'name: "x"'), "D02", "unknown"),
    Case(
        "ready_of_an_unknown_version_over_grpc",
        Rpc("ModelReady", 'name: "add_sub" version: "9"'),
        "D02",
        "unknown",
    ),
    Case(
        "ready_of_a_version_that_is_no_number_over_grpc",
        Rpc("ModelReady", 'name: "add_sub" version: "x"'),
        "D25",
        "a version is a number",
    ),
    # -------------------------------------------------------------------- metadata
    Case("metadata_of_a_model", get("/v2/models/add_sub"), "C05", "with batches"),
    Case("metadata_of_a_version", get("/v2/models/all_types/versions/1"), "C05", "without"),
    Case("metadata_of_an_unknown_model", get("/v2/models/unknown"), "C05", "unknown"),
    Case("metadata_of_an_unknown_version", get("/v2/models/add_sub/versions/9"), "C05", "unknown"),
    Case("metadata_over_grpc", Rpc("ModelMetadata", 'name: "add_sub"'), "D03", "with batches"),
    Case("metadata_of_an_unknown_model_over_grpc", Rpc("ModelMetadata", 'name: "x"'), "D03", "?"),
    Case("config_of_a_model", get("/v2/models/coded_decoupled/config"), "C06", "completed"),
    Case(
        "config_of_a_version", get("/v2/models/coded_batched/versions/1/config"), "C06", "the same"
    ),
    Case("config_of_an_unknown_model", get("/v2/models/unknown/config"), "C06", "unknown"),
    Case("config_over_grpc", Rpc("ModelConfig", 'name: "coded_decoupled"'), "D06", "completed"),
    Case("config_of_an_unknown_model_over_grpc", Rpc("ModelConfig", 'name: "x"'), "D06", "unknown"),
    Case("metadata_with_post", post("/v2/models/add_sub"), "C05", "the wrong method"),
    Case("server_metadata_with_post", post("/v2"), "C04", "the wrong method"),
    # ------------------------------------------------------------------ statistics
    Case(
        "statistics_after_a_success_and_a_failure",
        (
            infer("coded_other", tensor("CODE", "BYTES", ["return [say(1)]"])),
            infer("coded_other", tensor("CODE", "BYTES", ["raise ValueError('on purpose')"])),
            infer("coded_other", tensor("CODE", "INT8", [1])),
        ),
        "C80",
        "what is counted comes in the next table",
    ),
    Case("statistics_of_an_unknown_model", get("/v2/models/unknown/stats"), "C07", "unknown"),
    Case(
        "statistics_of_an_unknown_version", get("/v2/models/add_sub/versions/9/stats"), "C07", "?"
    ),
    Case("statistics_with_post", post("/v2/models/stats"), "C07", "the wrong method"),
    Case(
        "statistics_of_an_unknown_model_over_grpc", Rpc("ModelStatistics", 'name: "x"'), "D07", "?"
    ),
    # ------------------------------------------------------------------ repository
    Case("index", post(INDEX), "C10", "an empty body"),
    Case("index_of_what_is_ready", post(INDEX, {"ready": True}), "C10", "only those"),
    Case("index_of_a_repository", post("/v2/repository/r/index"), "C10", "its name is ignored"),
    Case("index_with_get", get(INDEX), "C10", "the wrong method"),
    Case("index_with_a_text", post(INDEX, {"ready": "yes"}), "C10", "a boolean"),
    Case("index_cut", post(INDEX, "{"), "C10", "half a JSON"),
    Case("index_over_grpc", Rpc("RepositoryIndex"), "D08", "the same"),
    Case(
        "index_of_a_repository_over_grpc",
        Rpc("RepositoryIndex", 'repository_name: "r"'),
        "D08",
        "its name is not ignored",
    ),
    Case("load_an_unknown_model", post(LOAD.format("unknown")), "C74", "no such directory"),
    Case("load_a_path", post(LOAD.format("..")), "C74", "not a name"),
    Case("load_with_get", get(LOAD.format("add_sub")), "C11", "the wrong method"),
    Case("load_cut", post(LOAD.format("add_sub"), "{"), "C71", "half a JSON"),
    Case(
        "load_with_an_unknown_parameter",
        post(LOAD.format("add_sub"), {"parameters": {"x": "y"}}),
        "C71",
        "no such parameter",
    ),
    Case(
        "load_with_a_config_that_is_no_json",
        post(LOAD.format("add_sub"), {"parameters": {"config": "x"}}),
        "C72",
        "a configuration is JSON",
    ),
    Case(
        "load_with_a_config_that_is_a_number",
        post(LOAD.format("add_sub"), {"parameters": {"config": 1}}),
        "C72",
        "a configuration is a text",
    ),
    Case(
        "load_with_a_file_and_no_config",
        post(LOAD.format("add_sub"), {"parameters": {"file:1/model.py": "eA=="}}),
        "C71",
        "files need a configuration",
    ),
    Case(
        "load_with_a_file_outside",
        post(
            LOAD.format("add_sub"),
            {"parameters": {"config": '{"backend":"python"}', "file:../x": "eA=="}},
        ),
        "C71",
        "files stay in the directory",
    ),
    Case("load_in_a_repository", post("/v2/repository/r/models/add_sub/load"), "C11", "not built"),
    Case(
        "load_an_unknown_model_over_grpc", Rpc("RepositoryModelLoad", 'model_name: "x"'), "D08", "?"
    ),
    Case(
        "load_with_a_number_over_grpc",
        Rpc(
            "RepositoryModelLoad",
            'model_name: "add_sub" parameters { key: "config" value { int64_param: 1 } }',
        ),
        "D08",
        "a configuration is a text",
    ),
    Case(
        "load_with_an_unknown_parameter_over_grpc",
        Rpc(
            "RepositoryModelLoad",
            'model_name: "add_sub" parameters { key: "x" value { int64_param: 1 } }',
        ),
        "D08",
        "no such parameter",
    ),
    Case("unload_an_unknown_model", post(UNLOAD.format("unknown")), "C75", "succeeds"),
    Case(
        "unload_with_a_text",
        post(UNLOAD.format("unknown"), {"parameters": {"unload_dependents": "yes"}}),
        "C75",
        "a boolean",
    ),
    Case(
        "unloaded",
        (
            post(UNLOAD.format("identity_fp32")),
            infer("identity_fp32", tensor("INPUT0", "FP32", [1])),
            get("/v2/models/identity_fp32/ready"),
            get("/v2/models/identity_fp32"),
            post(LOAD.format("identity_fp32")),
            infer("identity_fp32", tensor("INPUT0", "FP32", [1])),
        ),
        "C75",
        "gone, and there again",
    ),
    # --------------------------------------------------------------- shared memory
    Case("regions", get(f"{SYSTEM}/status"), "C91", "none"),
    Case("unknown_region", get(f"{SYSTEM}/region/unknown/status"), "C91", "unknown"),
    Case("unregister_all", post(f"{SYSTEM}/unregister"), "C92", "none is no error"),
    Case("unregister_an_unknown_region", post(f"{SYSTEM}/region/unknown/unregister"), "C92", "?"),
    Case(
        "register_what_is_not_there",
        post(f"{REGION}/register", {"key": "/conformance_none", "byte_size": 8}),
        "C90",
        "no such memory",
    ),
    Case("register_without_a_key", post(f"{REGION}/register", {"byte_size": 8}), "C90", "a key"),
    Case("register_without_a_size", post(f"{REGION}/register", {"key": "/x"}), "C90", "a size"),
    Case("register_without_a_body", post(f"{REGION}/register"), "C90", "no body"),
    Case(
        "register_with_a_number_as_key",
        post(f"{REGION}/register", {"key": 1, "byte_size": 8}),
        "C90",
        "a text",
    ),
    Case(
        "register_with_a_reserved_key",
        post(f"{REGION}/register", {"key": "/triton_python_backend_shm_region_x", "byte_size": 8}),
        "C90",
        "the backend's",
    ),
    Case("register_with_get", get(f"{REGION}/register"), "C12", "the wrong method"),
    Case("cuda_regions", get("/v2/cudasharedmemory/status"), "C13", "none"),
    Case(
        "unknown_cuda_region", get("/v2/cudasharedmemory/region/unknown/status"), "C13", "unknown"
    ),
    Case(
        "register_cuda",
        post(
            "/v2/cudasharedmemory/region/r/register",
            {"raw_handle": {"b64": "AAAA"}, "device_id": 0, "byte_size": 8},
        ),
        "C94",
        "without a GPU",
    ),
    Case("regions_over_grpc", Rpc("SystemSharedMemoryStatus"), "D09", "none"),
    Case(
        "unknown_region_over_grpc", Rpc("SystemSharedMemoryStatus", 'name: "x"'), "D09", "unknown"
    ),
    Case(
        "register_what_is_not_there_over_grpc",
        Rpc("SystemSharedMemoryRegister", 'name: "x" key: "/conformance_none" byte_size: 8'),
        "D09",
        "no such memory",
    ),
    Case(
        "register_cuda_over_grpc",
        Rpc("CudaSharedMemoryRegister", 'name: "x" byte_size: 8'),
        "D10",
        "without a GPU",
    ),
    # -------------------------------------------------------------------- settings
    Case("trace_settings", get(TRACE), "C96", "as they are"),
    Case("trace_settings_of_a_model", get("/v2/models/add_sub/trace/setting"), "C96", "the same"),
    Case("trace_settings_of_an_unknown_model", get("/v2/models/unknown/trace/setting"), "C96", "?"),
    Case(
        "trace_settings_of_a_version",
        get("/v2/models/add_sub/versions/1/trace/setting"),
        "C14",
        "no",
    ),
    Case(
        "trace_rate_set_and_reset",
        (post(TRACE, {"trace_rate": "5"}), post(TRACE, {"trace_rate": None})),
        "C96",
        "and back",
    ),
    Case("trace_rate_that_is_a_word", post(TRACE, {"trace_rate": "x"}), "C96", "a number as text"),
    Case(
        "trace_level_that_is_unknown", post(TRACE, {"trace_level": ["X"]}), "C96", "no such level"
    ),
    Case("trace_file", post(TRACE, {"trace_file": "/tmp/x"}), "C96", "cannot be changed"),
    Case("trace_setting_that_is_unknown", post(TRACE, {"x": "1"}), "C96", "no such setting"),
    Case("trace_settings_cut", post(TRACE, "{"), "C96", "half a JSON"),
    Case("trace_settings_over_grpc", Rpc("TraceSetting"), "D11", "as they are"),
    Case(
        "trace_rate_of_two_values_over_grpc",
        Rpc("TraceSetting", 'settings { key: "trace_rate" value { value: "1" value: "2" } }'),
        "D11",
        "one value",
    ),
    Case("logging", get(LOGGING), "C97", "as it is"),
    Case(
        "logging_set_and_reset",
        (
            post(LOGGING, {"log_verbose_level": 1, "log_format": "ISO8601"}),
            post(LOGGING, {"log_verbose_level": 0, "log_format": "default"}),
        ),
        "C97",
        "and back",
    ),
    Case("logging_file", post(LOGGING, {"log_file": "/tmp/x"}), "C97", "cannot be changed"),
    Case("logging_format_that_is_unknown", post(LOGGING, {"log_format": "x"}), "C97", "no such"),
    Case("logging_with_a_text", post(LOGGING, {"log_info": "yes"}), "C97", "a boolean"),
    Case("logging_setting_that_is_unknown", post(LOGGING, {"x": 1}), "C97", "no such setting"),
    Case("logging_cut", post(LOGGING, "{"), "C97", "half a JSON"),
    Case("logging_over_grpc", Rpc("LogSettings"), "D12", "as it is"),
    Case(
        "logging_with_a_text_over_grpc",
        Rpc("LogSettings", 'settings { key: "log_info" value { string_param: "x" } }'),
        "D12",
        "a boolean",
    ),
    # ----------------------------------------------------------------------- paths
    Case("unknown_path", get("/v2/unknown"), "C08", "nothing there"),
    Case("path_of_nothing", get("/"), "C08", "nothing there"),
    Case("path_with_a_slash_at_the_end", get("/v2/models/add_sub/"), "C08", "another path"),
    Case("path_with_a_query", get("/v2/health/live?x=1"), "C08", "a query is ignored"),
    Case("path_twice", get("/v2//models/add_sub"), "C08", "another path"),
    Case("metrics_on_this_port", get("/metrics"), "C16", "have a port of their own"),
    Case("unknown_method", Http("PATCH", "/v2/models/add_sub"), "C08", "the wrong method"),
    Case("options_method", Http("OPTIONS", "/v2/models/add_sub"), "C08", "the wrong method"),
    Case("delete_method", Http("DELETE", "/v2/models/add_sub"), "C08", "the wrong method"),
    Case("unknown_verb", post("/v2/models/add_sub/predict", {}), "C08", "nothing there"),
    Case("name_that_is_quoted", get("/v2/models/add%5Fsub"), "C08", "the same name"),
)
