"""Cases of the package without a server: what it refuses, and what it takes.

plain.py ANSWERS
"""

import dataclasses
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from common import tensors
from played import outcome, played

from zmqtriton.pytriton.decorators import (
    ConstantPadder,
    batch,
    fill_optionals,
    first_value,
    group_by_keys,
    group_by_values,
    sample,
    triton_context,
)
from zmqtriton.pytriton.exceptions import PyTritonValidationError
from zmqtriton.pytriton.model_config import (
    DeviceKind,
    DynamicBatcher,
    ModelConfig,
    QueuePolicy,
    Tensor,
    TimeoutAction,
)
from zmqtriton.pytriton.triton import RemoteTriton, Triton, TritonConfig, TritonSecurityConfig

INPUTS, OUTPUTS = tensors("a"), tensors("b")
PREFIX = "PYTRITON_TRITON_CONFIG_"


def infer(requests):
    return [{"b": request["a"]} for request in requests]


def bound(name="model", function=infer, inputs=INPUTS, outputs=OUTPUTS, **more):
    Triton().bind(name, function, inputs, outputs, **more)
    return "bound"


# ------------------------------------------------------------------------ bind


def bind_says_nothing():
    return Triton().bind("model", infer, INPUTS, OUTPUTS)


def bind_without_a_name():
    return bound("")


def bind_of_a_name_with_a_space():
    return bound("my model")


def bind_of_a_name_with_a_slash():
    return bound("my/model")


def bind_of_a_name_beyond_ascii():
    return bound("modèle")


def bind_of_a_name_with_a_line_break_at_the_end():
    return bound("model\n")


def bind_of_dots_alone():
    return bound("..")


def bind_of_a_name_that_is_a_number():
    return bound(7)


def bind_of_nothing():
    return bound(function=None)


def bind_of_a_number():
    return bound(function=7)


def bind_of_a_text():
    return bound(function="infer")


def bind_of_a_list_of_texts():
    return bound(function=["infer"])


def bind_of_an_empty_list():
    return bound(function=[])


def bind_of_a_set():
    return bound(function={infer})


def bind_without_inputs():
    return bound(inputs=[])


def bind_with_inputs_none():
    return bound(inputs=None)


def bind_without_outputs():
    return bound(outputs=[])


def bind_with_outputs_none():
    return bound(outputs=None)


def bind_with_an_optional_output():
    return bound(outputs=tensors("b", optional=True))


def bind_of_two_inputs_of_one_name():
    return bound(inputs=tensors("a", "a"))


def bind_with_batches_of_none():
    return bound(config=ModelConfig(max_batch_size=0))


def bind_with_a_priority_beyond_the_levels():
    return bound(
        config=ModelConfig(batcher=DynamicBatcher(priority_levels=1, default_priority_level=2))
    )


def bind_of_version_zero():
    return bound(model_version=0)


def bind_twice():
    triton = Triton()
    triton.bind("model", infer, INPUTS, OUTPUTS)
    triton.bind("model", infer, INPUTS, OUTPUTS)


def bind_twice_in_other_letters():
    triton = Triton()
    triton.bind("model", infer, INPUTS, OUTPUTS)
    triton.bind("MODEL", infer, INPUTS, OUTPUTS)


def bind_of_two_versions():
    triton = Triton()
    triton.bind("model", infer, INPUTS, OUTPUTS)
    triton.bind("model", infer, INPUTS, OUTPUTS, model_version=2)
    return "bound"


def bind_by_names():
    Triton().bind(infer_func=infer, inputs=INPUTS, outputs=OUTPUTS, model_name="m", strict=True)
    return "bound"


def bind_without_a_function():
    Triton().bind("model", inputs=INPUTS, outputs=OUTPUTS)


# ---------------------------------------------------------------------- Triton


def a_server_that_never_ran():
    triton = Triton()
    return [triton.is_alive(), triton.is_connected(), outcome(triton.stop)]


def a_remote_server_before_it_is_asked():
    remote = RemoteTriton("localhost:9")
    states = [remote.is_alive(), remote.is_connected()]
    remote.bind("model", infer, INPUTS, OUTPUTS)
    return [*states, remote.is_alive(), remote.is_connected(), remote.stop(), remote.stop()]


def triton_by_position():
    Triton(TritonConfig())


def token_of_one_s_own():
    return Triton(security_config=TritonSecurityConfig("mine")).get_access_token()


def token_of_nobody_s():
    tokens = [Triton().get_access_token() for _ in range(2)]
    return [len(tokens[0]), tokens[0] != tokens[1]]


def token_without_anything_to_protect():
    return TritonSecurityConfig(restricted_endpoints=[]).access_token


def endpoints_that_are_protected():
    return TritonSecurityConfig("t").restricted_endpoints


def endpoint_that_is_unknown():
    TritonSecurityConfig("t", ["health", "nobody", "inferences"])


def workspace_that_exists():
    with tempfile.TemporaryDirectory() as directory:
        try:
            Triton(workspace=directory)
        except FileExistsError as error:
            return str(error).replace(directory, "@DIRECTORY@")


def workspace_of_a_path():
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "new" / "workspace"
        Triton(workspace=path)
        return path.is_dir()


# ---------------------------------------------------------------- TritonConfig


def with_environment(**variables):
    os.environ.update({PREFIX + name: value for name, value in variables.items()})
    try:
        fields = TritonConfig.from_env().to_dict()
    finally:
        for name in variables:
            del os.environ[PREFIX + name]
    return {name: value for name, value in fields.items() if value is not None}


def config_of_nothing():
    return dataclasses.asdict(TritonConfig())


def config_by_position():
    TritonConfig("models")


def config_of_an_unknown_name():
    TritonConfig(http_prt=8000)


def config_without_http_and_grpc():
    TritonConfig(allow_http=False, allow_grpc=False)


def config_without_http():
    return TritonConfig(allow_http=False).allow_grpc


def config_of_the_environment():
    return with_environment(HTTP_PORT="8123", ID="mine", LOG_VERBOSE="2")


def config_of_the_environment_that_is_false():
    return with_environment(ALLOW_METRICS="False", ALLOW_GPU_METRICS="0", EXIT_ON_ERROR="")


def config_of_the_environment_that_is_no_number():
    return with_environment(HTTP_PORT="many")


def config_of_the_environment_that_is_unknown():
    return with_environment(NO_SUCH="1", HTTP_PORT="1")


def config_of_the_environment_with_lists():
    return with_environment(CACHE_CONFIG_0="local,size=1", CACHE_CONFIG_2="redis,host=x")


def config_of_the_environment_with_a_list_in_one():
    return with_environment(TRACE_CONFIG="level=TIMESTAMPS,rate=1")


def config_of_a_dictionary():
    config = TritonConfig.from_dict({"http_port": "8123", "id": 7, "model_repository": "/tmp"})
    return [config.http_port, config.id, type(config.model_repository).__name__]


def config_of_a_dictionary_with_an_unknown_name():
    return TritonConfig.from_dict({"http_prt": 1, "grpc_port": 2}).grpc_port


def config_of_a_dictionary_with_none():
    return TritonConfig.from_dict({"http_port": None}).http_port


def config_of_a_dictionary_with_a_list():
    return TritonConfig.from_dict({"metrics_config": ("a=b", "c=d")}).metrics_config


# ----------------------------------------------------------- models and tensors


def model_config_of_nothing():
    fields = dataclasses.asdict(ModelConfig())
    return {name: str(value) for name, value in fields.items()}


def model_config_by_position():
    return dataclasses.astuple(ModelConfig(False, 7))[:2]


def queue_policy_of_nothing():
    fields = dataclasses.asdict(QueuePolicy())
    return {name: str(value) for name, value in fields.items()}


def names_of_kinds():
    return [[kind.name, kind.value] for kind in (*DeviceKind, *TimeoutAction)]


def tensor_by_position():
    tensor = Tensor((1,), np.float32, "a", True)
    return [tensor.shape, tensor.name, tensor.optional, tensor.dtype is np.float32]


def tensor_of_a_dtype():
    tensor = Tensor(shape=(1,), dtype=np.dtype("int8"))
    return [tensor.dtype is np.int8, tensor.name, tensor.optional, repr(tensor)]


def tensor_of_a_name_of_a_type():
    return repr(Tensor(shape=(1,), dtype="float32"))


def tensor_that_is_changed():
    Tensor(shape=(1,), dtype=bytes).name = "a"


def tensor_that_is_equal():
    return Tensor(shape=(1,), dtype=np.dtype("int8")) == Tensor(shape=(1,), dtype=np.int8)


def tensor_without_a_shape():
    Tensor(dtype=bytes)


# ------------------------------------------------------------------ decorators


def text_of(function, *arguments, **inputs):
    return repr(function(*arguments, **inputs))


def sample_that_is_not_bound():
    return text_of(sample(lambda a: {"b": a + 1}), [{"a": np.array([1])}])


def sample_of_a_list_that_is_not_bound():
    return text_of(sample(lambda a: [a]), [{"a": np.array([1])}])


def sample_of_a_set():
    return text_of(sample(lambda a: {1}), [{"a": np.array([1])}])


def sample_of_two_requests():
    return text_of(sample(lambda a: {"b": a}), [{"a": np.array([1])}, {"a": np.array([2])}])


def batch_that_is_not_bound():
    @batch
    def infer(a):
        return {"b": a}

    return text_of(infer, [Asked(a=np.array([[1]]))])


def batch_of_plain_dictionaries():
    return text_of(batch(lambda a: {"b": a}), [{"a": np.array([[1]])}])


def batch_of_requests_with_other_inputs():
    requests = [Asked(a=np.array([[1]])), Asked(c=np.array([[1]]))]
    return text_of(batch(lambda **inputs: {"b": inputs["a"]}), requests)


def batch_of_other_widths():
    requests = [Asked(a=np.array([[1]])), Asked(a=np.array([[1, 2]]))]
    return text_of(batch(lambda a: {"b": a}), requests)


def batch_of_no_requests():
    return text_of(batch(lambda a: {"b": a}), [])


def context_that_is_not_bound():
    return text_of(triton_context(lambda requests, **more: requests), [])


def first_value_of_the_context():
    first_value("__triton_context__")


def first_value_that_is_not_bound():
    return text_of(first_value("a")(lambda a: a), a=np.array([[1]]))


def defaults_that_are_not_bound():
    return text_of(fill_optionals(a=np.array([1]))(lambda requests: requests), [{}])


def groups_of_keys():
    seen = []

    @group_by_keys
    def infer(requests):
        seen.append([sorted(request) for request in requests])
        return [{"b": len(request)} for request in requests]

    one, two = {"a": np.array([1])}, {"b": np.array([1]), "a": np.array([2])}
    return [infer([two, one, two]), seen]


def groups_of_values():
    seen = []

    @group_by_values("k")
    def infer(k, a):
        seen.append(k.tolist())
        return {"b": a * 10}

    answer = infer(k=np.array([[2], [1], [2]]), a=np.array([[1], [2], [3]]))
    return [answer["b"].tolist(), seen]


def groups_of_values_of_texts():
    seen = []

    @group_by_values("k")
    def infer(k, a):
        seen.append(str(k.tolist()))
        return {"b": a}

    keys = np.array([[b"y"], [b"x"], [b"y"]], dtype=object)
    return [infer(k=keys, a=np.array([[1], [2], [3]]))["b"].tolist(), seen]


def groups_of_values_before_batches():
    return text_of(group_by_values("k")(batch(lambda k: {"b": k})), k=np.array([[1]]))


def groups_of_a_value_that_is_missing():
    return text_of(group_by_values("k")(lambda a: {"b": a}), a=np.array([[1]]))


def padded_to_the_largest():
    batches = [{"a": np.array([[1]])}, {"a": np.array([[1, 2]]), "t": np.array([[b"x"]])}]
    return repr(ConstantPadder(9)(batches))


def padded_texts_of_two_lengths():
    batches = [{"t": np.array([[b"x"]])}, {"t": np.array([[b"long", b"y"]])}]
    return repr(ConstantPadder()(batches))


def padded_of_two_types():
    ConstantPadder()([{"a": np.array([[1]])}, {"a": np.array([[1.0]])}])


def padded_of_two_sizes_of_a_type():
    ConstantPadder()([{"a": np.array([[1]], np.int32)}, {"a": np.array([[1]], np.int64)}])


def text_of_an_exception():
    error = PyTritonValidationError("wrong")
    return [str(error), error.message, isinstance(error, Exception), list(error.args)]


class Asked(dict):
    """A request as decorators see it."""

    span = None


if __name__ == "__main__":
    HELPERS = {infer, bound, with_environment, text_of, tensors, outcome, played}
    played(
        sys.argv[1],
        [
            case
            for case in list(globals().values())
            if getattr(case, "__module__", "") == "__main__"
            and callable(case)
            and not isinstance(case, type)
            and case not in HELPERS
        ],
    )
