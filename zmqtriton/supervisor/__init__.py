"""The control plane: the models and processes that should run, and the steps towards them.

`core` decides and does no I/O; `service` is the loop that performs its decisions.
"""

from typing import TYPE_CHECKING

from zmqtriton_floor.lazy_names import lazy_names

#: The names for add-ons, by module.
_NAMES = {
    "actions": "ChangeRepositories FileReport InBackground LocalCopy LookAtFiles "
    "ReadStacks RemoteNames RepositoriesInUse RepositoryNames Send Spawn",
    "control.load_calls": "HOW_TO_BE_EXPLICIT",
    "control.verbs": (
        "ControlCall OWN_CALLER RepeatedCall Verb Verbs always check_names "
        "find_model optional_model_name required_model_name the_same"
    ),
    "features.feature": "CoreParts Feature HostServer",
    "machine.processes.quotas": "NoControlGroups",
    "models.order": "reaches",
    "models.generation": "Generation",
    "models.instance": "StubPlace",
    "models.model": "ServedModel",
    "models.model_report": "describe_instances is_silent",
    "helper_processes": "HelperOwner PreparationStatus",
    "models.readings": "ModelSource",
    "models.startup": "find_gone",
    "models.version": "serving_generations",
    "machine.action_runner": "OpenedServer",
    "plan": "Plan PlanTimer",
    "settings": "Policy",
    "server_processes.audience": "Audience",
    "server_processes.broker_counts": "BrokerCounts CountsReport",
    "service": "run",
    "story": "All Change Promise Scope Story kept",
    "states": "GenerationState InstanceState KillRequested TransitionError UNLOADED",
}

if TYPE_CHECKING:
    from zmqtriton.supervisor.actions import (
        ChangeRepositories,
        FileReport,
        InBackground,
        LocalCopy,
        LookAtFiles,
        ReadStacks,
        RemoteNames,
        RepositoriesInUse,
        RepositoryNames,
        Send,
        Spawn,
    )
    from zmqtriton.supervisor.control.load_calls import HOW_TO_BE_EXPLICIT
    from zmqtriton.supervisor.control.verbs import (
        OWN_CALLER,
        ControlCall,
        RepeatedCall,
        Verb,
        Verbs,
        always,
        check_names,
        find_model,
        optional_model_name,
        required_model_name,
        the_same,
    )
    from zmqtriton.supervisor.features.feature import CoreParts, Feature, HostServer
    from zmqtriton.supervisor.helper_processes import HelperOwner, PreparationStatus
    from zmqtriton.supervisor.machine.action_runner import OpenedServer
    from zmqtriton.supervisor.machine.processes.quotas import NoControlGroups
    from zmqtriton.supervisor.models.generation import Generation
    from zmqtriton.supervisor.models.instance import StubPlace
    from zmqtriton.supervisor.models.model import ServedModel
    from zmqtriton.supervisor.models.model_report import describe_instances, is_silent
    from zmqtriton.supervisor.models.order import reaches
    from zmqtriton.supervisor.models.readings import ModelSource
    from zmqtriton.supervisor.models.startup import find_gone
    from zmqtriton.supervisor.models.version import serving_generations
    from zmqtriton.supervisor.plan import Plan, PlanTimer
    from zmqtriton.supervisor.server_processes.audience import Audience
    from zmqtriton.supervisor.server_processes.broker_counts import BrokerCounts, CountsReport
    from zmqtriton.supervisor.service import run
    from zmqtriton.supervisor.settings import Policy
    from zmqtriton.supervisor.states import (
        UNLOADED,
        GenerationState,
        InstanceState,
        KillRequested,
        TransitionError,
    )
    from zmqtriton.supervisor.story import All, Change, Promise, Scope, Story, kept
else:
    __getattr__ = lazy_names(__name__, _NAMES)
