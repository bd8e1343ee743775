"""The supervisor: features with their hooks and control calls, and the models that it runs.

Features import this; they run in the supervisor, decide, and act through its `Plan`.
"""

from typing import TYPE_CHECKING

from zmqtriton_floor.lazy_names import lazy_names

if TYPE_CHECKING:
    from zmqtriton.supervisor import actions as actions
    from zmqtriton.supervisor.control.verbs import (
        ControlCall as ControlCall,
        Verb as Verb,
    )
    from zmqtriton.supervisor.features.feature import CoreParts as CoreParts, Feature as Feature
    from zmqtriton.supervisor.machine.action_runner import OpenedServer as OpenedServer
    from zmqtriton.supervisor.models.generation import Generation as Generation
    from zmqtriton.supervisor.models.instance import StubPlace as StubPlace
    from zmqtriton.supervisor.models.model import ServedModel as ServedModel
    from zmqtriton.supervisor.models.order import reaches as reaches
    from zmqtriton.supervisor.service import run as run
    from zmqtriton.supervisor.story import Promise as Promise, Scope as Scope
    from zmqtriton.supervisor.plan import Plan as Plan
    from zmqtriton.supervisor.states import InstanceState as InstanceState
    from zmqtriton.supervisor.helper_processes import (
        HelperOwner as HelperOwner,
        PreparationStatus as PreparationStatus,
    )
    from zmqtriton_floor.settings.tracing import (
        Sampling as Sampling,
        TracingSettings as TracingSettings,
    )
    from zmqtriton.reading.blueprint import (
        Blueprint as Blueprint,
        FileSource as FileSource,
    )
else:
    __getattr__ = lazy_names(__name__)
