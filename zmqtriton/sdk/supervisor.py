"""The supervisor: features with their hooks and control calls, and the models that it runs.

Features import this; they run in the supervisor, decide, and act through its `Plan`.
"""

from typing import TYPE_CHECKING

from zmqtriton_floor.lazy_names import lazy_names

if TYPE_CHECKING:
    from zmqtriton.reading import blueprint as blueprint
    from zmqtriton.supervisor import (
        actions as actions,
        helper_processes as helper_processes,
        plan as plan,
        states as states,
        story as story,
    )
    from zmqtriton.supervisor.control import verbs as verbs
    from zmqtriton.supervisor.control.verbs import (
        ControlCall as ControlCall,
        Verb as Verb,
        Verbs as Verbs,
    )
    from zmqtriton.supervisor.features.feature import (
        CoreParts as CoreParts,
        Feature as Feature,
        HostServer as HostServer,
    )
    from zmqtriton.supervisor.machine.action_runner import OpenedServer as OpenedServer
    from zmqtriton.supervisor.machine.processes.quotas import NoControlGroups as NoControlGroups
    from zmqtriton.supervisor.models import model_report as model_report
    from zmqtriton.supervisor.models.generation import Generation as Generation
    from zmqtriton.supervisor.models.instance import StubPlace as StubPlace
    from zmqtriton.supervisor.models.model import ServedModel as ServedModel
    from zmqtriton.supervisor.models.order import reaches as reaches
    from zmqtriton.supervisor.models.readings import ModelSource as ModelSource
    from zmqtriton.supervisor.models.startup import find_gone as find_gone
    from zmqtriton.supervisor.models.version import serving_generations as serving_generations
    from zmqtriton.supervisor.server_processes import broker_counts as broker_counts
    from zmqtriton.supervisor.server_processes.audience import Audience as Audience
    from zmqtriton.supervisor.service import run as run
    from zmqtriton.supervisor.settings import Policy as Policy
    from zmqtriton.supervisor.story import Promise as Promise
else:
    __getattr__ = lazy_names(__name__)
