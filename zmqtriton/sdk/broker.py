"""The broker: its decisions, for a placement of requests and for a simulation.

A `broker.placement` imports this, in the broker's process, and the simulation of bench.
"""

from typing import TYPE_CHECKING

from zmqtriton_floor.lazy_names import lazy_names

if TYPE_CHECKING:
    from zmqtriton.broker.core import BrokerCore as BrokerCore
    from zmqtriton.broker.requests.inflight import InflightRequest as InflightRequest
    from zmqtriton.broker.scheduling.instances import Instance as Instance
    from zmqtriton.broker.scheduling.placement import Placement as Placement
    from zmqtriton.broker.scheduling.scheduler import Scheduler as Scheduler
    from zmqtriton.broker.sequences.controls import SequenceControls as SequenceControls
    from zmqtriton_floor.settings.broker import BrokerSettings as BrokerSettings
else:
    __getattr__ = lazy_names(__name__)
