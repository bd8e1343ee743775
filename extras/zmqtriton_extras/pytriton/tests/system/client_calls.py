"""Calls of all clients of a package, as a program that prints what each comes to.

    python client_calls.py PACKAGE HTTP_ADDRESS GRPC_ADDRESS

PACKAGE is `pytriton` or `zmqtriton.pytriton`; nothing else of ours is imported, since the Python
may be another's. Prints a JSON object: results and errors as text, by the names of the calls.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import sys
import warnings
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np

A = np.arange(16, dtype=np.float32)
ONES = np.ones(3, np.float32)
THREE = np.array([3], np.int32)
SOON_S = 0.1
TOLD_BY_THE_SERVER, TRIES = "Deadline Exceeded: ", 20
SLOW = (np.array([b"slow"]), np.array([250], np.int32))
SLOW_TOKENS = (THREE, np.array([250_000], np.int32))
IMPATIENT = {"inference_timeout_s": SOON_S}
URLS = (
    "localhost",
    "localhost:5",
    "http://h",
    "grpc://h",
    "grpc://h:9",
    "HTTP://h",
    "http://h/path",
    "https://h",
    "ftp://h",
    "://h",
    "",
    "h:x",
    "http://h:99999",
    None,
    5,
    "127.0.0.1:8000",
)
PARAMETERS = {"a": 1, "b": "x", "c": True}
REPORT = "import json\nreturn [reply(json.dumps(json.loads(request.parameters()), sort_keys=True))]"
REQUEST = "return [reply([request.request_id(), sorted(request.requested_output_names())])]"
CONFIG = {
    "name": "identity_fp32",
    "backend": "python",
    "max_batch_size": 4,
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
}

Call = Callable[[Any], Any]


def text(words: str) -> np.ndarray:
    return np.array([words.encode()])


def ask_impatiently(client: Any) -> Any:
    """Ask with a timeout that is too short for the response, until the client is who tells it.

    Over gRPC the server knows the deadline, too, and both end the request in the same moment.
    """
    settings = {"model_config": client.model_config, "ensure_model_is_ready": False}
    with type(client)(
        client.address, "journal", inference_timeout_s=SOON_S, **settings
    ) as impatient:
        for _ in range(TRIES - 1):
            try:
                return impatient.infer_sample(*SLOW)
            except Exception as error:
                is_late = type(error).__name__ == "PyTritonClientTimeoutError"
                if TOLD_BY_THE_SERVER not in str(error) or not is_late:
                    raise
        return impatient.infer_sample(*SLOW)


def ask_with_a_time_limit(client: Any) -> str:
    """Ask with a limit that over HTTP the server alone knows; return the kind of the outcome."""
    outcome = "answered"
    try:
        client.infer_sample(*SLOW, headers={"x-request-timeout": "0.05"})
    except Exception as error:  # noqa: BLE001 - both packages have their own
        outcome = f"{type(error).__name__} {TOLD_BY_THE_SERVER in str(error)}"
    return outcome


#: Model, call, and options of the client; of ModelClient, and where it says so of others.
SYNC: dict[str, tuple[str, Call, dict[str, Any]]] = {
    "sample": ("add_sub", lambda c: c.infer_sample(A, A), {}),
    "sample by name": ("add_sub", lambda c: c.infer_sample(INPUT1=A, INPUT0=A), {}),
    "batch": ("add_sub", lambda c: c.infer_batch(A[None], A[None]), {}),
    "batch by name": ("add_sub", lambda c: c.infer_batch(INPUT0=A[None], INPUT1=A[None]), {}),
    "without batches": ("identity_fp32", lambda c: c.infer_sample(ONES), {}),
    "batch without batches": ("identity_fp32", lambda c: c.infer_batch(ONES), {}),
    "is_batching_supported": ("identity_fp32", lambda c: c.is_batching_supported, {}),
    "no elements": ("identity_fp32", lambda c: c.infer_sample(ONES[:0]), {}),
    "every second": ("identity_fp32", lambda c: c.infer_sample(A[::2]), {}),
    "bytes": ("string_upper", lambda c: c.infer_sample(np.array([b"ab", b"c"])), {}),
    "objects": ("string_upper", lambda c: c.infer_sample(np.array([b"ab"], object)), {}),
    "unicode": ("string_upper", lambda c: c.infer_sample(np.array(["ab"])), {}),
    "str objects": ("string_upper", lambda c: c.infer_sample(np.array(["ab"], object)), {}),
    "no inputs": ("add_sub", lambda c: c.infer_sample(), {}),
    "both conventions": ("add_sub", lambda c: c.infer_sample(A, INPUT1=A), {}),
    "too many inputs": ("add_sub", lambda c: c.infer_sample(A, A, A), {}),
    "too few inputs": ("add_sub", lambda c: c.infer_sample(A), {}),
    "unknown input": ("add_sub", lambda c: c.infer_sample(NOPE=A, INPUT1=A), {}),
    "wrong shape": ("add_sub", lambda c: c.infer_sample(A[:3], A), {}),
    "wrong datatype": ("add_sub", lambda c: c.infer_sample(A.astype(np.int32), A), {}),
    "no datatype": ("add_sub", lambda c: c.infer_sample(A.astype(complex), A), {}),
    "a list": ("add_sub", lambda c: c.infer_sample([1.0], A), {}),
    "raising": ("raising", lambda c: c.infer_sample(ONES), {}),
    "request": ("scripted", lambda c: c.infer_sample(SCRIPT=text(REQUEST)), {}),
    "second request": (
        "scripted",
        lambda c: [c.infer_sample(SCRIPT=text(REQUEST)) for _ in range(2)],
        {},
    ),
    "parameters": (
        "scripted",
        lambda c: c.infer_sample(SCRIPT=text(REPORT), parameters=PARAMETERS),
        {},
    ),
    "headers": (
        "scripted",
        lambda c: c.infer_sample(SCRIPT=text(REPORT), headers={"x-one": "1"}),
        {},
    ),
    "float parameter": ("add_sub", lambda c: c.infer_sample(A, A, parameters={"a": 1.0}), {}),
    "list of parameters": ("add_sub", lambda c: c.infer_sample(A, A, parameters=[1]), {}),
    "number as a name": ("add_sub", lambda c: c.infer_sample(A, A, parameters={1: 1}), {}),
    "reserved": ("add_sub", lambda c: c.infer_sample(A, A, parameters={"timeout": 1}), {}),
    "reserved prefix": ("add_sub", lambda c: c.infer_sample(A, A, parameters={"triton_x": 1}), {}),
    "float header": ("add_sub", lambda c: c.infer_sample(A, A, headers={"a": 1.0}), {}),
    "unknown model": ("nowhere", lambda c: c.infer_sample(A), {"init_timeout_s": SOON_S}),
    "unknown model at once": ("nowhere", str, {"init_timeout_s": SOON_S, "lazy_init": False}),
    "wait for unknown": ("nowhere", lambda c: c.wait_for_model(SOON_S), {}),
    "wait_for_model": ("add_sub", lambda c: c.wait_for_model(60.0), {}),
    "wait_for_server": ("add_sub", lambda c: c.wait_for_server(60.0), {}),
    "version": ("add_sub", lambda c: c.infer_sample(A, A), {"model_version": "1"}),
    "config": ("add_sub", lambda c: c.model_config, {}),
    "decoupled config": ("tokens", lambda c: c.model_config, {}),
    "config with parameters": ("journal", lambda c: c.model_config.backend_parameters.keys(), {}),
    "slow": ("journal", lambda c: ask_impatiently(c), {}),
    "late for the server": ("journal", lambda c: ask_with_a_time_limit(c), {}),
    "decoupled": ("tokens", lambda c: c.infer_sample(THREE), {}),
    "closed": ("add_sub", lambda c: [c.close(), c.close(), c.infer_sample(A, A)], {}),
    "closed, waiting": ("add_sub", lambda c: [c.close(), c.wait_for_model(1.0)], {}),
    "closed, config": ("add_sub", lambda c: [c.close(), c.model_config], {}),
    "load with a config": (
        "identity_fp32",
        lambda c: [c.load_model(config=json.dumps(CONFIG)), c.infer_batch(ONES[None])],
        {"access_token": "secret"},
    ),
    "unload and load": (
        "identity_fp32",
        lambda c: [c.unload_model(), c.load_model(), c.infer_sample(ONES)],
        {"access_token": "secret"},
    ),
    "load without a token": ("identity_fp32", lambda c: c.load_model(), {}),
    "load unknown": ("nowhere", lambda c: c.load_model(), {"access_token": "secret"}),
    "empty token": ("add_sub", str, {"access_token": ""}),
    "from_existing_client": (
        "add_sub",
        lambda c: [c.infer_sample(A, A), type(c).from_existing_client(c).infer_sample(A, A)],
        {},
    ),
}
FUTURES: dict[str, tuple[str, Call, dict[str, Any]]] = {
    "sample": ("add_sub", lambda c: c.infer_sample(A, A).result(), {}),
    "batch": ("add_sub", lambda c: c.infer_batch(A[None], A[None]).result(), {}),
    "many": (
        "add_sub",
        lambda c: len([f.result() for f in [c.infer_sample(A, A) for _ in range(100)]]),
        {"max_workers": 1},
    ),
    "config": ("add_sub", lambda c: c.model_config().result(), {}),
    "wait_for_model": ("add_sub", lambda c: c.wait_for_model(60.0).result(), {}),
    "raising": ("raising", lambda c: c.infer_sample(ONES).result(), {}),
    "unknown": (
        "nowhere",
        lambda c: c.infer_sample(ONES).result(),
        {"init_timeout_s": SOON_S},
    ),
    "both conventions": ("add_sub", lambda c: c.infer_sample(A, INPUT1=A).result(), {}),
    "no workers": ("add_sub", str, {"max_workers": 0}),
    "no queue": ("add_sub", str, {"max_queue_size": 0}),
    "full": (
        "journal",
        lambda c: [c.model_config().result(), [c.infer_sample(*SLOW) for _ in range(8)]],
        {"max_workers": 1, "max_queue_size": 2, "non_blocking": True},
    ),
    "closed": ("add_sub", lambda c: [c.close(), c.infer_sample(A, A)], {}),
}
DECOUPLED: dict[str, tuple[str, Call, dict[str, Any]]] = {
    "stream": ("tokens", lambda c: list(c.infer_sample(THREE)), {}),
    "nothing": ("tokens", lambda c: list(c.infer_sample(THREE * 0)), {}),
    "coupled": ("add_sub", lambda c: list(c.infer_sample(A, A)), {}),
    "wrong shape": ("tokens", lambda c: list(c.infer_sample(A.astype(np.int32))), {}),
    "batch": ("tokens", lambda c: list(c.infer_batch(THREE)), {}),
    "parameters": ("tokens", lambda c: list(c.infer_sample(THREE, parameters={"a": 1})), {}),
    "slow": ("tokens", lambda c: list(c.infer_sample(*SLOW_TOKENS))[:2], IMPATIENT),
}


async def config_of(client: Any) -> Any:
    return await client.model_config


async def collect(stream: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in stream]


ASYNCIO: dict[str, tuple[str, Call, dict[str, Any]]] = {
    name: SYNC[name]
    for name in (
        "sample",
        "sample by name",
        "batch",
        "without batches",
        "batch without batches",
        "bytes",
        "unicode",
        "both conventions",
        "raising",
        "request",
        "parameters",
        "headers",
        "wait_for_model",
        "decoupled",
        "a list",
    )
}
ASYNCIO["config"] = ("add_sub", config_of, {})
ASYNCIO_DECOUPLED: dict[str, tuple[str, Call, dict[str, Any]]] = {
    "stream": ("tokens", lambda c: collect(c.infer_sample(THREE)), {}),
    "nothing": ("tokens", lambda c: collect(c.infer_sample(THREE * 0)), {}),
    "coupled": ("add_sub", lambda c: collect(c.infer_sample(A, A)), {}),
    "wrong shape": ("tokens", lambda c: collect(c.infer_sample(A.astype(np.int32))), {}),
    "batch": ("tokens", lambda c: collect(c.infer_batch(THREE)), {}),
    "slow": ("tokens", lambda c: collect(c.infer_sample(*SLOW_TOKENS)), IMPATIENT),
}


class Report:
    """The outcomes of all calls of a package."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.clients = importlib.import_module(f"{package}.client")
        self.tools = importlib.import_module(f"{package}.client.utils")
        self.outcomes: dict[str, Any] = {}

    def note(self, name: str, call: Callable[[], Any]) -> None:
        try:
            outcome = self._normal(call())
        except Exception as error:  # noqa: BLE001 - it is the outcome
            text = self._text(str(error))
            outcome = {"error": type(error).__name__, "text": text}
        self.outcomes[name] = outcome

    def _normal(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._normal(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._normal(item) for item in value]
        if isinstance(value, np.ndarray):
            return [str(value.dtype), list(value.shape), repr(value.tolist())]
        return self._text(repr(value))

    def _text(self, text: str) -> str:
        return text.replace(f"{self.package}.", "")

    def sync(self, kind: str, url: str, row: tuple[str, Call, dict[str, Any]]) -> Any:
        model, call, options = row
        with getattr(self.clients, kind)(url, model, **options) as client:
            client.address = url
            return call(client)

    def asyncio(self, kind: str, url: str, row: tuple[str, Call, dict[str, Any]]) -> Any:
        async def ask() -> Any:
            model, call, options = row
            async with getattr(self.clients, kind)(url, model, **options) as client:
                return await asyncio.wait_for(call(client), 60.0)

        return asyncio.run(ask())

    def url(self, url: Any) -> Any:
        parsed = self.tools.TritonUrl.from_url(url)
        return parsed.scheme, parsed.hostname, parsed.port, parsed.with_scheme

    def wait(self, url: str) -> Any:
        client = self.tools.create_client_from_url(url, network_timeout_s=60.0)
        self.tools.wait_for_server_ready(client, timeout_s=60.0)
        self.tools.wait_for_model_ready(client, "add_sub", timeout_s=60.0)
        return self.tools.get_model_config(client, "add_sub", timeout_s=60.0)

    def run(self, protocol: str, url: str) -> None:
        for kind, table, ask in (
            ("ModelClient", SYNC, self.sync),
            ("FuturesModelClient", FUTURES, self.sync),
            ("DecoupledModelClient", DECOUPLED, self.sync),
            ("AsyncioModelClient", ASYNCIO, self.asyncio),
            ("AsyncioDecoupledModelClient", ASYNCIO_DECOUPLED, self.asyncio),
        ):
            for name, row in table.items():
                self.note(f"{protocol} {kind}: {name}", lambda: ask(kind, url, row))  # noqa: B023
        self.note(f"{protocol} waiting", lambda: self.wait(url))


def main() -> None:
    package, http, grpc = sys.argv[1:]
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    report = Report(package)
    for url in URLS:
        report.note(f"url {url!r}", lambda: report.url(url))  # noqa: B023
    report.run("http", http)
    report.run("grpc", grpc)
    print(json.dumps(report.outcomes))  # noqa: T201
    sys.stdout.flush()
    # One of the packages leaves threads that never end where its client failed.
    os._exit(0)


if __name__ == "__main__":
    main()
