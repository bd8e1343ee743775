"""The control plane: the models and processes that should run, and the steps towards them.

`core` decides and does no I/O; `service` is the loop that performs its decisions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zmqtriton_floor.lazy_names import lazy_names

#: The names for add-ons, by module.
_NAMES = {
    "actions": "ChangeRepositories FileReport InBackground KeepDecisions LocalCopy LookAtFiles "
    "ReadStacks RemoteListing RepositoriesInUse RepositoryListing RepositoryNames Send Spawn",
    "control.load_calls": "HOW_TO_BE_EXPLICIT",
    "control.verbs": (
        "ControlCall OWN_CALLER RepeatedCall Verb Verbs always check_names "
        "find_model optional_model_name required_model_name the_same"
    ),
    "features.feature": "CoreParts Feature HostServer",
    "machine.host.capacity": "available_bytes enclosing_groups",
    "machine.host.gpus": "NvmlError chosen_gpus list_nvml_gpus nvml_device nvml_library "
    "used_nvml_memory visible_gpus",
    "machine.host.fitness": "lacks",
    "machine.entry.ports": "describe_listener waits_in_systemd",
    "machine.settings.python_settings": "check_settings",
    "machine.host.quotas": "NoControlGroups",
    "machine.host.start_checks": "find_problems",
    "models.blueprint": "Blueprint FileSource Scale",
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
    "story": "Change Promise Result Story all_of kept tell",
    "states": "GenerationState InstanceState KillRequested TransitionError UNLOADED",
}

if TYPE_CHECKING:
    from zmqtriton.supervisor.actions import (
        ChangeRepositories,
        FileReport,
        InBackground,
        KeepDecisions,
        LocalCopy,
        LookAtFiles,
        ReadStacks,
        RemoteListing,
        RepositoriesInUse,
        RepositoryListing,
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
    from zmqtriton.supervisor.machine.entry.ports import describe_listener, waits_in_systemd
    from zmqtriton.supervisor.machine.host.capacity import available_bytes, enclosing_groups
    from zmqtriton.supervisor.machine.host.fitness import lacks
    from zmqtriton.supervisor.machine.host.gpus import (
        NvmlError,
        chosen_gpus,
        list_nvml_gpus,
        nvml_device,
        nvml_library,
        used_nvml_memory,
        visible_gpus,
    )
    from zmqtriton.supervisor.machine.host.quotas import NoControlGroups
    from zmqtriton.supervisor.machine.host.start_checks import find_problems
    from zmqtriton.supervisor.machine.settings.python_settings import check_settings
    from zmqtriton.supervisor.models.blueprint import Blueprint, FileSource, Scale
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
    from zmqtriton.supervisor.story import Change, Promise, Result, Story, all_of, kept, tell
else:
    __getattr__ = lazy_names(__name__, _NAMES)
