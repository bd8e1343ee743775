"""The advice of `zmqtriton-ctl infer` about a request that is refused."""

from __future__ import annotations

import pytest

from tests.standard.ctl.answering import answering
from tests.standard.ctl.fake_server import FakeServer, run


@pytest.mark.parametrize(
    ("status", "advice"), [(401, ""), (403, ""), (503, "; `zmqtriton-ctl explain m` may say why")]
)
def test_explain_is_proposed_where_it_may_know_more(
    server: FakeServer, status: int, advice: str
) -> None:
    server.answers["index"] = [{"name": "m"}]
    body = b'{"error": "no"}'
    head = f"HTTP/1.1 {status} No\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    with answering(head + body) as url:
        refused = run("infer", "m", "--zeros", "--url", url)

    assert f"error: no (HTTP {status}){advice}\n" == refused.stderr
