"""The RPCs that infer nothing: health, metadata, statistics, repository, regions, settings."""

from __future__ import annotations

from tests.conformance.cases import Bytes, Case, Rpc, called, message

REPOSITORY = "grpc"
HEALTH = "/grpc.health.v1.Health/Check"
#: In the messages that ask for a model: whether the field is `name` or `model_name`.
ASKED = (
    ("ModelReady", "D02"),
    ("ModelMetadata", "D03"),
    ("ModelConfig", "D06"),
    ("ModelStatistics", "D07"),
)
VERSIONS = (
    ("newest", 'name: "versions"'),
    ("of_version_1", 'name: "versions" version: "1"'),
    ("of_version_3", 'name: "versions" version: "3"'),
    ("of_version_x", 'name: "versions" version: "x"'),
    ("of_version_minus_one", 'name: "versions" version: "-1"'),
    ("of_nobody", 'name: "nobody"'),
    ("of_version_1_of_nobody", 'name: "nobody" version: "1"'),
)


def setting(method: str, key: str, value: str, more: str = "") -> Rpc:
    return Rpc(method, f'settings {{ key: "{key}" value {{ {value} }} }} {more}')


def load(model: str, key: str = "", value: str = "") -> Rpc:
    parameter = f'parameters {{ key: "{key}" value {{ {value} }} }}' if key else ""
    return Rpc("RepositoryModelLoad", f'model_name: "{model}" {parameter}')


def unload(model: str, more: str = "") -> Rpc:
    return Rpc("RepositoryModelUnload", f'model_name: "{model}" {more}')


CASES = (
    Case("server_is_ready", Rpc("ServerReady"), "D01", "every model is"),
    Case("health_of_the_server", Bytes(HEALTH, b""), "D13", "no service is named"),
    Case("health_of_a_service", Bytes(HEALTH, b"\x0a\x01x"), "D13", "an unknown one is ignored"),
    Case("health_of_no_message", Bytes(HEALTH, b"\xff"), "D13", "no protobuf"),
    *(
        # The counters of a model that nobody asks are the same in two runs.
        Case(
            f"{method.lower()}_{name}",
            Rpc(method, text.replace("versions", "idle") if row == "D07" else text),
            row,
            "a version, or none",
        )
        for method, row in ASKED
        for name, text in VERSIONS
    ),
    Case("modelready_of_no_name", Rpc("ModelReady"), "D02", "an empty message"),
    Case("modelmetadata_of_no_name", Rpc("ModelMetadata"), "D03", "an empty message"),
    Case("modelconfig_of_no_name", Rpc("ModelConfig"), "D06", "an empty message"),
    # ------------------------------------------------------------------ unknown methods
    *(
        Case(f"method_{name}", Bytes(path, b""), "D13", why)
        for name, path, why in (
            ("that_is_unknown", "/inference.GRPCInferenceService/Nothing", "no such method"),
            ("of_an_unknown_service", "/nobody.Service/Nothing", "no such service"),
            ("in_small_letters", "/inference.GRPCInferenceService/serverlive", "case counts"),
            ("without_a_service", "/ServerLive", "half a name"),
            (
                "of_reflection",
                "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                "not offered",
            ),
            ("of_channelz", "/grpc.channelz.v1.Channelz/GetServers", "not offered"),
        )
    ),
    # ---------------------------------------------------------------------- repository
    Case(
        "index_of_what_is_ready_over_grpc",
        Rpc("RepositoryIndex", "ready: true"),
        "D08",
        "ready ones",
    ),
    Case("load_of_a_model_over_grpc", load("versions"), "D08", "again, nothing has changed"),
    Case("load_of_no_name_over_grpc", load(""), "D08", "no name"),
    Case("load_of_a_path_over_grpc", load("../x"), "D08", "a path is no name"),
    Case("load_of_nobody_over_grpc", load("nobody"), "D08", "no such directory"),
    Case(
        "load_from_a_repository_over_grpc",
        Rpc("RepositoryModelLoad", 'repository_name: "r" model_name: "versions"'),
        "D08",
        "its name is not ignored",
    ),
    Case(
        "unload_from_a_repository_over_grpc",
        unload("versions", 'repository_name: "r"'),
        "D08",
        "its name is not ignored",
    ),
    Case(
        "load_with_bytes_as_config_over_grpc",
        load("versions", "config", 'bytes_param: "{}"'),
        "D08",
        "a text",
    ),
    Case(
        "load_with_a_config_that_is_none_over_grpc",
        load("versions", "config", 'string_param: "x"'),
        "D08",
        "no JSON",
    ),
    Case(
        "load_with_a_text_as_file_over_grpc",
        load("versions", "file:1/model.py", 'string_param: "x"'),
        "D08",
        "a file is bytes",
    ),
    Case(
        "load_with_a_file_and_no_config_over_grpc",
        load("versions", "file:1/model.py", 'bytes_param: "x"'),
        "D08",
        "a file needs a configuration",
    ),
    Case(
        "load_with_a_boolean_that_is_unknown",
        load("versions", "x", "bool_param: true"),
        "D08",
        "no such parameter",
    ),
    Case(
        "unload_with_a_text_over_grpc",
        unload(
            "nobody",
            'parameters { key: "unload_dependents" value { string_param: "true" } }',
        ),
        "D08",
        "a boolean",
    ),
    Case("unload_of_nobody_over_grpc", unload("nobody"), "D08", "who is unknown is gone"),
    Case("unload_of_no_name_over_grpc", unload(""), "D08", "no name"),
    Case(
        "unloaded_over_grpc",
        (
            unload("versions"),
            Rpc("ModelReady", 'name: "versions"'),
            Rpc("ModelReady", 'name: "versions" version: "1"'),
            Rpc("ModelMetadata", 'name: "versions"'),
            Rpc("ModelConfig", 'name: "versions" version: "1"'),
            Rpc("ModelInfer", message("versions", ("X", "FP32", [1], bytes(4)))),
            Rpc(
                "ModelInfer",
                message("versions", ("X", "FP32", [1], bytes(4)), more='model_version: "1"'),
            ),
        ),
        "D08",
        "what remains of it",
    ),
    Case(
        "loaded_again_over_grpc",
        (
            load("versions"),
            Rpc("ModelReady", 'name: "versions"'),
            Rpc("ModelInfer", message("versions", ("X", "FP32", [1], bytes(4)))),
        ),
        "D08",
        "as before",
    ),
    Case(
        "loaded_with_a_config_over_grpc",
        (
            load(
                "coded",
                "config",
                'string_param: "{\\"backend\\": \\"python\\", \\"input\\": [{\\"name\\": '
                '\\"CODE\\", \\"data_type\\": \\"TYPE_STRING\\", \\"dims\\": [1]}], '
                '\\"output\\": [{\\"name\\": \\"SAID\\", \\"data_type\\": \\"TYPE_STRING\\", '
                '\\"dims\\": [-1]}]}"',
            ),
            Rpc("ModelMetadata", 'name: "coded"'),
            called("return [say(1)]"),
            load("coded"),
            Rpc("ModelMetadata", 'name: "coded"'),
        ),
        "D08",
        "instead of the file, until the next load",
    ),
    # ------------------------------------------------------------------- shared memory
    Case("cuda_regions_over_grpc", Rpc("CudaSharedMemoryStatus"), "D10", "none"),
    Case(
        "cuda_region_that_is_unknown_over_grpc",
        Rpc("CudaSharedMemoryStatus", 'name: "x"'),
        "D10",
        "no such region",
    ),
    *(
        Case(f"{kind.lower()}_{name}_over_grpc", Rpc(f"{kind}SharedMemoryUnregister", text), row, w)
        for kind, row in (("System", "D09"), ("Cuda", "D10"))
        for name, text, w in (
            ("unregister_of_nobody", 'name: "x"', "who is unknown is gone"),
            ("unregister_of_all", "", "all of none"),
        )
    ),
    Case(
        "register_without_a_name_over_grpc",
        Rpc("SystemSharedMemoryRegister", 'key: "/conformance_none" byte_size: 8'),
        "D09",
        "an empty name",
    ),
    Case(
        "register_without_a_key_over_grpc",
        Rpc("SystemSharedMemoryRegister", 'name: "x" byte_size: 8'),
        "D09",
        "an empty key",
    ),
    Case(
        "register_without_a_size_over_grpc",
        Rpc("SystemSharedMemoryRegister", 'name: "x" key: "/conformance_none"'),
        "D09",
        "nothing of it",
    ),
    # ------------------------------------------------------------------------ settings
    Case(
        "trace_level_cleared_over_grpc",
        setting("TraceSetting", "trace_level", ""),
        "D11",
        "an empty list",
    ),
    Case(
        "trace_rate_set_and_cleared_over_grpc",
        (
            setting("TraceSetting", "trace_rate", 'value: "7"'),
            setting("TraceSetting", "trace_rate", ""),
        ),
        "D11",
        "there and back",
    ),
    Case(
        "trace_rate_that_is_no_number_over_grpc",
        setting("TraceSetting", "trace_rate", 'value: "x"'),
        "D11",
        "a number",
    ),
    Case(
        "trace_level_that_is_unknown_over_grpc",
        setting("TraceSetting", "trace_level", 'value: "ALL"'),
        "D11",
        "no such level",
    ),
    Case(
        "trace_setting_that_is_unknown_over_grpc",
        setting("TraceSetting", "x", 'value: "1"'),
        "D11",
        "no such setting",
    ),
    Case(
        "trace_of_nobody_over_grpc",
        Rpc("TraceSetting", 'model_name: "nobody"'),
        "D11",
        "no such model",
    ),
    Case(
        "trace_of_a_model_over_grpc",
        Rpc("TraceSetting", 'model_name: "add_sub"'),
        "D11",
        "those of all",
    ),
    Case(
        "log_info_off_and_on_over_grpc",
        (
            setting("LogSettings", "log_info", "bool_param: false"),
            setting("LogSettings", "log_info", "bool_param: true"),
        ),
        "D12",
        "there and back",
    ),
    Case(
        "log_verbose_with_a_boolean_over_grpc",
        setting("LogSettings", "log_verbose_level", "bool_param: true"),
        "D12",
        "a number",
    ),
    Case(
        "log_format_that_is_unknown_over_grpc",
        setting("LogSettings", "log_format", 'string_param: "x"'),
        "D12",
        "no such format",
    ),
    Case(
        "log_file_over_grpc",
        setting("LogSettings", "log_file", 'string_param: "/tmp/x"'),
        "D12",
        "not while the server runs",
    ),
    Case(
        "log_setting_that_is_unknown_over_grpc",
        setting("LogSettings", "x", "bool_param: true"),
        "D12",
        "no such setting",
    ),
)
