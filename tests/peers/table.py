"""The forms that calls of other people's clients must have, written by hand.

A set has keys that an answer has at least; a list the forms of its first elements.
"""

from __future__ import annotations

from typing import Any

_SETTINGS = {"trace_file", "trace_level", "trace_rate", "trace_count", "log_frequency"}
_LOG = {"log_file", "log_info", "log_warning", "log_error", "log_verbose_level", "log_format"}
_SUM = {"outputs": {"OUTPUT0": "float32[1, 16]", "OUTPUT1": "float32[1, 16]"}}
_NUMBER = {"outputs": {"NUMBER": "int32[1]"}}
_REFUSED = {"error": "InferenceServerException"}

#: Of all four clients of tritonclient.
_COMMON: dict[str, Any] = {
    "close": None,
    "get_cuda_shared_memory_status": [],
    "get_inference_statistics": {"model_stats"},
    "get_log_settings": _LOG,
    "get_model_config": {"name", "backend", "input", "output", "instance_group"},
    "get_model_metadata": {"name", "versions", "platform", "inputs", "outputs"},
    "get_model_repository_index": [{"name"}],
    "get_server_metadata": {"name", "version", "extensions"},
    "get_system_shared_memory_status": [{"name", "key", "offset", "byte_size"}],
    "get_trace_settings": _SETTINGS,
    "infer": _SUM,
    "is_model_ready": True,
    "is_server_live": True,
    "is_server_ready": True,
    "load_model": None,
    "plugin": True,
    "register_cuda_shared_memory": _REFUSED,
    "register_plugin": None,
    "register_system_shared_memory": None,
    "unload_model": None,
    "unregister_cuda_shared_memory": None,
    "unregister_plugin": None,
    "unregister_system_shared_memory": None,
    "update_log_settings": _LOG,
    "update_trace_settings": _SETTINGS,
}
#: gRPC's answers are messages, of which dictionaries are made that leave out what is empty.
_OF_GRPC: dict[str, Any] = {
    "get_cuda_shared_memory_status": {"keys": []},
    "get_log_settings": {"settings"},
    "get_model_config": {"config"},
    "get_model_repository_index": {"models"},
    "get_system_shared_memory_status": {"regions"},
    "get_trace_settings": {"settings"},
    "update_log_settings": {"settings"},
    "update_trace_settings": {"settings"},
}
_BODIES: dict[str, Any] = {
    "generate_request_body": "tuple",
    "parse_response_body": {"outputs": {"O": "int32[1]"}},
}

TRITONCLIENT: dict[str, dict[str, Any]] = {
    "http": {**_COMMON, **_BODIES, "async_infer": _SUM},
    "grpc": {
        **_COMMON,
        **_OF_GRPC,
        "async_infer": _SUM,
        "async_stream_infer": [_NUMBER],
        "start_stream": None,
        "stop_stream": None,
    },
    "http.aio": {**_COMMON, **_BODIES},
    "grpc.aio": {**_COMMON, **_OF_GRPC, "stream_infer": [_NUMBER]},
}

_CHAT = {"id", "choices", "created", "model", "object"}
_UNKNOWN = {"error": "NotFoundError", "status": "404"}

OPENAI: dict[str, Any] = {
    "chat.completions.create": {*_CHAT, "usage"},
    "chat.completions.create stream": [_CHAT],
    "chat.completions.create unknown": _UNKNOWN,
    "completions.create": {*_CHAT, "usage"},
    "completions.create several": {*_CHAT, "usage"},
    "completions.create stream": [_CHAT],
    "embeddings.create": {"data", "model", "object", "usage"},
    "files.list": _UNKNOWN,
    "images.generate": _UNKNOWN,
    "models.list": {"data", "object"},
    "models.retrieve": {"id", "object", "owned_by"},
    "models.retrieve unknown": _UNKNOWN,
    "moderations.create": _UNKNOWN,
}

#: Those of its resources that somebody has looked at; the first four are served.
OPENAI_RESOURCES = frozenset(
    "Chat Completions Embeddings Models "
    "Admin Audio Batches Beta Containers ContentProvenanceChecks Decisions Evals Files FineTuning "
    "Images Moderations Responses Safety Skills Uploads VectorStores Videos".split()
)

_UPPER = {"OUTPUT0"}
_MODEL_CLIENT: dict[str, Any] = {
    "close": None,
    "create_client_from_url": {"object": "InferenceServerClient"},
    "from_existing_client": {"object": "ModelClient"},
    "get_lib": "str",
    "infer_batch": _UPPER,
    "infer_sample": _UPPER,
    "is_batching_supported": True,
    "load_model": None,
    "model_config": {"object": "TritonModelConfig"},
    "unload_model": None,
    "wait_for_model": None,
    "wait_for_server": None,
}
_ASYNCIO_CLIENT: dict[str, Any] = {
    "close": None,
    "create_client_from_url": {"object": "InferenceServerClient"},
    # it hands on an argument that its own constructor does not take
    "from_existing_client": {"error": "TypeError"},
    "get_lib": "str",
    "infer_batch": _UPPER,
    "infer_sample": _UPPER,
    "model_config": {"object": "TritonModelConfig"},
    "wait_for_model": None,
}
_FUTURES_CLIENT: dict[str, Any] = {
    "close": None,
    "infer_batch": _UPPER,
    "infer_sample": _UPPER,
    "model_config": {"object": "TritonModelConfig"},
    "wait_for_model": None,
}
_COUNTED: dict[str, Any] = {"close": None, "infer_sample": [{"NUMBER"}]}

PYTRITON: dict[str, dict[str, Any]] = {
    **{
        f"{name} {protocol}": forms
        for name, forms in (
            ("ModelClient", _MODEL_CLIENT),
            ("AsyncioModelClient", _ASYNCIO_CLIENT),
            ("FuturesModelClient", _FUTURES_CLIENT),
        )
        for protocol in ("http", "grpc")
    },
    "DecoupledModelClient": _COUNTED,
    "AsyncioDecoupledModelClient": _COUNTED,
}
