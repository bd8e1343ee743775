"""Cases of the package's own clients, who ask a server that `host.py` has started.

asking.py ANSWERS HTTP GRPC
"""

import asyncio
import sys

import numpy as np
from played import played

from zmqtriton.pytriton.client import (
    AsyncioModelClient,
    DecoupledModelClient,
    FuturesModelClient,
    ModelClient,
)

HTTP = f"http://127.0.0.1:{sys.argv[2]}"
GRPC = f"grpc://127.0.0.1:{sys.argv[3]}"
ONE = np.array([1.0, 2.0], np.float32)
ROWS = np.array([[1.0], [2.0], [3.0], [4.0]], np.float32)


def shown(answer):
    return {name: [str(array.dtype), repr(array.tolist())] for name, array in answer.items()}


def client(model, url=HTTP, kind=ModelClient, within_s=60.0, **more):
    return kind(url, model, inference_timeout_s=60.0, init_timeout_s=within_s, **more)


def sample_by_position():
    with client("asked") as asker:
        return shown(asker.infer_sample(ONE))


def sample_by_name_over_grpc():
    with client("asked", GRPC) as asker:
        return shown(asker.infer_sample(a=ONE))


def batch_of_a_model():
    with client("asked_rows") as asker:
        return shown(asker.infer_batch(ROWS))


def batch_of_a_model_without_batches():
    with client("asked") as asker:
        asker.infer_batch(ROWS)


def batch_that_is_too_large():
    with client("asked_rows") as asker:
        asker.infer_batch(np.zeros((5, 1), np.float32))


def sample_by_position_and_name():
    with client("asked") as asker:
        asker.infer_sample(ONE, a=ONE)


def sample_of_nothing():
    with client("asked") as asker:
        asker.infer_sample()


def sample_of_an_unknown_input():
    with client("asked") as asker:
        asker.infer_sample(c=ONE)


def sample_of_another_type():
    with client("asked") as asker:
        asker.infer_sample(ONE.astype(np.int32))


def sample_of_unicode():
    with client("asked_text") as asker:
        asker.infer_sample(np.array(["a"]))


def sample_of_texts():
    with client("asked_text") as asker:
        return shown(asker.infer_sample(np.array([b"ab", b"c"])))


def sample_of_a_list():
    with client("asked") as asker:
        asker.infer_sample([1.0])


def sample_with_parameters():
    with client("asked_more") as asker:
        return shown(asker.infer_sample(ONE, parameters={"p": 1, "q": "x", "r": True}))


def sample_with_headers():
    with client("asked_more") as asker:
        return shown(asker.infer_sample(ONE, headers={"x-one": "1", "other": "2"}))


def sample_of_a_model_with_batches():
    """A row is added, and taken away again."""
    with client("asked_rows") as asker:
        return shown(asker.infer_sample(ONE))


def sample_with_a_wrong_parameter():
    with client("asked") as asker:
        asker.infer_sample(ONE, parameters={"p": 1.5})


def sample_with_parameters_that_are_a_list():
    with client("asked") as asker:
        asker.infer_sample(ONE, parameters=[1])


def sample_of_a_decoupled_model():
    with client("asked_stream", GRPC) as asker:
        asker.infer_sample(ONE)


def stream_of_a_decoupled_model():
    with client("asked_stream", GRPC, DecoupledModelClient) as asker:
        return [shown(answer) for answer in asker.infer_sample(ONE)]


def client_stream_over_http():
    with client("asked_stream", HTTP, DecoupledModelClient) as asker:
        return [shown(answer) for answer in asker.infer_sample(ONE)]


def model_that_is_unknown():
    with client("nobody", within_s=0.5) as asker:
        asker.infer_sample(ONE)


def version_that_is_unknown():
    with client("asked", within_s=0.5, model_version="7") as asker:
        asker.infer_sample(ONE)


def server_that_is_not_there():
    with ModelClient("http://127.0.0.1:1", "asked", init_timeout_s=0.3) as asker:
        asker.infer_sample(ONE)


def address_that_is_none():
    ModelClient("http://127.0.0.1:port", "asked")


def scheme_that_is_unknown():
    ModelClient("ftp://127.0.0.1:1", "asked")


def client_that_is_closed():
    asker = client("asked")
    asker.close()
    asker.infer_sample(ONE)


def configuration_of_a_model():
    with client("asked_rows") as asker:
        config = asker.model_config
        inputs = [(i.name, list(i.shape), i.dtype.__name__, i.optional) for i in config.inputs]
        return [config.model_name, config.max_batch_size, config.decoupled, inputs]


def batches_are_supported():
    with client("asked_rows") as one, client("asked") as other:
        return [one.is_batching_supported, other.is_batching_supported]


def exception_of_a_model():
    with client("asked_failing") as asker:
        asker.infer_sample(ONE)


def future_of_a_sample():
    with FuturesModelClient(HTTP, "asked") as asker:
        return shown(asker.infer_sample(ONE).result(60))


def future_that_fails():
    with FuturesModelClient(HTTP, "asked") as asker:
        asker.infer_sample(c=ONE).result(60)


def future_of_a_configuration():
    with FuturesModelClient(HTTP, "asked") as asker:
        return asker.model_config().result(60).model_name


def coroutine_of_a_sample():
    async def ask():
        async with AsyncioModelClient(HTTP, "asked") as asker:
            return shown(await asker.infer_sample(ONE))

    return asyncio.run(ask())


def coroutine_of_a_batch_over_grpc():
    async def ask():
        async with AsyncioModelClient(GRPC, "asked_rows") as asker:
            return shown(await asker.infer_batch(ROWS))

    return asyncio.run(ask())


if __name__ == "__main__":
    played(
        sys.argv[1],
        [
            case
            for case in list(globals().values())
            if getattr(case, "__module__", "") == "__main__" and case not in (shown, client)
        ],
    )
