"""The state of the broker: its peers, the models that it serves, and the messages to be sent.

All parts have the state, under the same names. It consists of data and accounts; the parts decide.
"""

from __future__ import annotations

from zmqtriton.broker.memory.blocks import Blocks
from zmqtriton.broker.metrics.statistics import Traffic
from zmqtriton.broker.outbox import Outbox
from zmqtriton.broker.peers import Peer
from zmqtriton.broker.requests.begun_requests import BegunRequests
from zmqtriton.broker.requests.inflight import InflightRequest
from zmqtriton.broker.requests.limits import Limits
from zmqtriton.broker.scheduling.generations import GenerationRegistry
from zmqtriton.broker.scheduling.instances import Instance
from zmqtriton_floor.execution_progress import RequestKey


class BrokerState:
    def __init__(self) -> None:
        self.outbox = Outbox()
        #: Known processes, and the stubs of models among them, both by serial.
        self.peers: dict[int, Peer] = {}
        self.instances: dict[int, Instance] = {}
        self.generations = GenerationRegistry()
        self.limits = Limits()
        self.traffic = Traffic()
        #: Stubs by the requests that they have of an earlier broker, until these are repeated.
        self.received: dict[RequestKey, int] = {}
        #: Unanswered calls of models, and steps of ensembles, that may still be queued.
        self.awaited: dict[RequestKey, InflightRequest] = {}
        self.blocks = Blocks(self.outbox, self.peers, self.received)
        self.begun = BegunRequests()


class BrokerPart:
    """A part of the broker: it has the state, and gets the other parts that it uses."""

    def __init__(self, state: BrokerState) -> None:
        self._outbox = state.outbox
        self._peers = state.peers
        self._instances = state.instances
        self._generations = state.generations
        self._schedulers = state.generations.schedulers
        self._limits = state.limits
        self._traffic = state.traffic
        self._blocks = state.blocks
        self._begun = state.begun
