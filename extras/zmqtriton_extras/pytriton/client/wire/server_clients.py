"""A server as a client sees it, over either protocol: one class for threads, one for asyncio."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, TypeVar

from zmqtriton_extras.pytriton.client.wire.calls import (
    Array,
    Call,
    Calls,
    Headers,
    Inference,
    StreamTimeout,
    TritonUrl,
)
from zmqtriton_extras.pytriton.client.wire.http_transports import (
    AsyncHttpTransport,
    HttpCalls,
    HttpTransport,
)

T = TypeVar("T")


@contextmanager
def _grpc_imports() -> Iterator[None]:
    """Wrap imports of gRPC, made at first use: they take longer than all other imports."""
    try:
        yield
    except ModuleNotFoundError as error:
        text = f"{error}, which gRPC needs: pip install 'zmqtriton-client[grpc]'"
        raise ModuleNotFoundError(text, name=error.name) from None


def _calls(url: TritonUrl) -> Calls:
    if url.scheme == "http":
        return HttpCalls()
    with _grpc_imports():
        from zmqtriton_extras.pytriton.client.wire.grpc_transports import GrpcCalls

    return GrpcCalls()


class ServerClient:
    """A server for threads, with methods like Triton's own client."""

    def __init__(self, url: TritonUrl, timeout_s: float, headers: Headers | None = None) -> None:
        """Set up; `headers` go with every call; `timeout_s` is the default limit of a call."""
        self.timeout_s = timeout_s
        self._headers = headers or {}
        self._calls = _calls(url)
        self._transport = self._open(url)

    def _open(self, url: TritonUrl) -> Any:
        if url.scheme == "http":
            return HttpTransport(url)
        with _grpc_imports():
            from zmqtriton_extras.pytriton.client.wire.grpc_transports import GrpcTransport

        return GrpcTransport(url)

    def _ask(self, call: Call[T], headers: Headers | None, timeout_s: float | None) -> T:
        headers = {**self._headers, **(headers or {})}
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        return call.read(self._transport.exchange(call.request, headers, timeout_s))

    def is_server_live(
        self, headers: Headers | None = None, *, timeout_s: float | None = None
    ) -> bool:
        return self._ask(self._calls.server_live(), headers, timeout_s)

    def is_server_ready(
        self, headers: Headers | None = None, *, timeout_s: float | None = None
    ) -> bool:
        return self._ask(self._calls.server_ready(), headers, timeout_s)

    def is_model_ready(
        self,
        model_name: str,
        model_version: str = "",
        headers: Headers | None = None,
        *,
        timeout_s: float | None = None,
    ) -> bool:
        return self._ask(self._calls.model_ready(model_name, model_version), headers, timeout_s)

    def get_model_config(
        self, model_name: str, model_version: str = "", headers: Headers | None = None
    ) -> dict[str, Any]:
        return self._ask(self._calls.model_config(model_name, model_version), headers, None)

    def get_model_repository_index(self, headers: Headers | None = None) -> list[dict[str, str]]:
        return self._ask(self._calls.repository_index(), headers, None)

    def load_model(
        self,
        model_name: str,
        headers: Headers | None = None,
        *,
        config: str | None = None,
        files: Mapping[str, bytes] | None = None,
        timeout_s: float | None = None,
    ) -> None:
        self._ask(self._calls.load_model(model_name, config, files or {}), headers, timeout_s)

    def unload_model(
        self, model_name: str, headers: Headers | None = None, *, timeout_s: float | None = None
    ) -> None:
        self._ask(self._calls.unload_model(model_name), headers, timeout_s)

    def infer(self, inference: Inference, headers: Headers, timeout_s: float) -> dict[str, Array]:
        return self._ask(self._calls.infer(inference), headers, timeout_s)

    def stream_infer(
        self, inference: Inference, headers: Headers, timeout: StreamTimeout
    ) -> Iterator[dict[str, Array]]:
        """Send a request now and return its responses."""
        call = self._calls.stream_infer(inference)
        headers = {**self._headers, **headers}
        return _read_all(call, self._transport.stream(call.request, headers, timeout))

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> ServerClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _read_all(call: Call[T], answers: Generator[Any, None, None]) -> Iterator[T]:
    with closing(answers):
        for answer in answers:
            yield call.read(answer)


class AsyncServerClient:
    """A server, called by the tasks of one event loop."""

    def __init__(self, url: TritonUrl, timeout_s: float, headers: Headers | None = None) -> None:
        self.timeout_s = timeout_s
        self._headers = headers or {}
        self._calls = _calls(url)
        self._transport = self._open(url)

    def _open(self, url: TritonUrl) -> Any:
        if url.scheme == "http":
            return AsyncHttpTransport(url)
        with _grpc_imports():
            from zmqtriton_extras.pytriton.client.wire.grpc_transports import AsyncGrpcTransport

        return AsyncGrpcTransport(url)

    async def _ask(self, call: Call[T], headers: Headers | None, timeout_s: float | None) -> T:
        headers = {**self._headers, **(headers or {})}
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        return call.read(await self._transport.exchange(call.request, headers, timeout_s))

    async def is_server_live(self, *, timeout_s: float | None = None) -> bool:
        return await self._ask(self._calls.server_live(), None, timeout_s)

    async def is_server_ready(self, *, timeout_s: float | None = None) -> bool:
        return await self._ask(self._calls.server_ready(), None, timeout_s)

    async def is_model_ready(
        self, model_name: str, model_version: str = "", *, timeout_s: float | None = None
    ) -> bool:
        call = self._calls.model_ready(model_name, model_version)
        return await self._ask(call, None, timeout_s)

    async def get_model_config(self, model_name: str, model_version: str = "") -> dict[str, Any]:
        return await self._ask(self._calls.model_config(model_name, model_version), None, None)

    async def get_model_repository_index(self) -> list[dict[str, str]]:
        return await self._ask(self._calls.repository_index(), None, None)

    async def infer(
        self, inference: Inference, headers: Headers, timeout_s: float
    ) -> dict[str, Array]:
        return await self._ask(self._calls.infer(inference), headers, timeout_s)

    async def stream_infer(
        self, inference: Inference, headers: Headers, timeout: StreamTimeout
    ) -> AsyncGenerator[dict[str, Array], None]:
        """Send a request and return its responses."""
        call = self._calls.stream_infer(inference)
        headers = {**self._headers, **headers}
        answers = self._transport.stream(call.request, headers, timeout)
        try:
            async for answer in answers:
                yield call.read(answer)
        finally:
            await answers.aclose()

    async def close(self) -> None:
        await self._transport.close()
