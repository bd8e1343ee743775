"""SRV records of DNS, which the system's resolver does not know: asked with dnspython."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from zmqtriton_floor.errors import InvalidArgument, NotFound

_ANSWER_WITHIN_S = 3.0


class SrvRecord(NamedTuple):
    priority: int
    weight: int
    port: int
    target: str


def look_up(name: str, name_servers: Sequence[tuple[str, int]] = ()) -> list[SrvRecord]:
    """Ask the name servers, by default the system's, one after the other; the preferred come first.

    Raises NotFound, and InvalidArgument if none has an answer.
    """
    # only now: the other commands need no DNS
    from dns.exception import DNSException
    from dns.nameserver import Do53Nameserver
    from dns.resolver import NXDOMAIN, Resolver

    if not name.strip("."):
        raise InvalidArgument(f"'{name}' is no name")
    try:
        resolver = Resolver(configure=not name_servers)
        if name_servers:
            resolver.nameservers = [Do53Nameserver(host, port) for host, port in name_servers]
        resolver.timeout = _ANSWER_WITHIN_S
        resolver.lifetime = _ANSWER_WITHIN_S * len(resolver.nameservers)
        answer = resolver.resolve(f"{name.rstrip('.')}.", "SRV", raise_on_no_answer=False)
    except NXDOMAIN:
        raise NotFound(f"DNS does not know '{name}'") from None
    except DNSException as error:
        raise InvalidArgument(f"no answer about '{name}': {error}") from None
    return sorted(
        SrvRecord(each.priority, each.weight, each.port, each.target.to_text(omit_final_dot=True))
        for each in answer.rrset or ()
    )
