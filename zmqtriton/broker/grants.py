"""How far the readers of streams have come, on its way to the stubs that send them.

The service hands it over; knows nothing of what is streamed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zmqtriton.broker.core import Core
    from zmqtriton_floor.wire import StreamAcks


def pass_on(core: Core, serial: int, message: StreamAcks) -> None:
    """A reader of streams lets its stubs send more."""
    requests = core.peers[serial].requests
    for grant in message.acks:
        request = requests.get(grant.id)
        if request is None:
            continue
        if request.run is not None:
            core.ensembles.consumed(request.run, grant.responses)
        elif request.instance is not None:
            grants = core.outbox.grants.setdefault(request.instance.serial, [])
            grants.append(grant._replace(peer=serial))
