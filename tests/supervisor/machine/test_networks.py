"""Which machines have no IPv4, and what all addresses are there."""

from __future__ import annotations

import socket

import psutil
import pytest

from zmqtriton.options import Options
from zmqtriton.supervisor.machine import networks

LOOPBACK = ["127.0.0.1", "::1"]


@pytest.mark.parametrize(
    ("addresses", "is_so"),
    [
        (LOOPBACK, False),
        (["::1"], True),
        (["127.0.0.1"], False),
        ([], False),
        ([*LOOPBACK, "10.0.0.7"], False),
        ([*LOOPBACK, "10.0.0.7", "fe80::1%eth0"], False),
        ([*LOOPBACK, "10.0.0.7", "2001:db8::7"], False),
        ([*LOOPBACK, "2001:db8::7", "fe80::1%eth0"], True),
        # a pod of an IPv6 cluster, whose way out to IPv4 is a link of its own
        ([*LOOPBACK, "fd00::7", "169.254.172.3"], True),
    ],
)
def test_machines_that_others_reach_by_ipv6_alone(addresses: list[str], is_so: bool) -> None:
    assert is_so == networks.has_only_ipv6(addresses)


def test_all_addresses_are_those_that_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options(grpc_address="127.0.0.1", metrics_address="0.0.0.0")

    monkeypatch.setattr(networks, "_own_addresses", lambda: LOOPBACK)
    assert options == networks.widen(options)

    monkeypatch.setattr(networks, "_own_addresses", lambda: [*LOOPBACK, "2001:db8::7"])
    wide = networks.widen(options)
    assert ("::", "127.0.0.1", "::") == (
        wide.http_address,
        wide.grpc_address,
        wide.metrics_address,
    )


def test_the_addresses_of_this_machine_are_found() -> None:
    rows = [row for each in psutil.net_if_addrs().values() for row in each]
    expected = {
        r.address.partition("%")[0] for r in rows if r.family in (socket.AF_INET, socket.AF_INET6)
    }

    assert expected == set(networks._own_addresses())
