"""Models on disk: their configurations, directories and environments, and findings about them.

Checks, commands and the processes that prepare models import this; features of the supervisor use
it for names and texts alone.
"""

from typing import TYPE_CHECKING

from zmqtriton_floor.lazy_names import lazy_names

if TYPE_CHECKING:
    from zmqtriton import figures as figures
    from zmqtriton.config import pbtxt as pbtxt
    from zmqtriton.config.errors import Problem as Problem
    from zmqtriton.config.parameters import parameter_text as parameter_text, Quota as Quota
    from zmqtriton.diagnosis.doctor import diagnose as diagnose
    from zmqtriton.diagnosis.explain import explain as explain, explain_version as explain_version
    from zmqtriton.diagnosis.facts import asking as asking
    from zmqtriton.diagnosis.facts.places import Frame as Frame
    from zmqtriton.diagnosis.facts.served import AnswerReader as AnswerReader, Facts as Facts
    from zmqtriton.diagnosis.facts.target import Chapter as Chapter, Target as Target
    from zmqtriton.environments import users as users
    from zmqtriton.findings import Finding as Finding, Severity as Severity
    from zmqtriton.repository import scan as scan
    from zmqtriton.repository.file_state import file_state as file_state
    from zmqtriton.store_places import is_remote as is_remote
    from zmqtriton_floor.signature import config_parameter as config_parameter
    from zmqtriton_stub import api as api, model as model
    from zmqtriton_stub.played import PlayedStub as PlayedStub
    from zmqtriton_stub.api import dlpack as dlpack
    from zmqtriton_stub.memory import gpu as gpu
    from zmqtriton.environments.demand import (
        Environment as Environment,
        EnvironmentSpec as EnvironmentSpec,
        resolve_environment as resolve_environment,
    )
    from zmqtriton.diagnosis.facts.sources import check_sources as check_sources
    from zmqtriton.repository.decisions import (
        Decision as Decision,
        KeepDecisions as KeepDecisions,
        state_root as state_root,
    )
    from zmqtriton.config.backends import find_model_file as find_model_file, models_in as models_in
    from zmqtriton.config.instances import (
        instance_specs as instance_specs,
        with_group_defaults as with_group_defaults,
    )
    from zmqtriton.config.model_config import (
        ModelHost as ModelHost,
        load_config as load_config,
        merge_completion as merge_completion,
    )
    from zmqtriton.diagnosis.rules.causes import explain_reason as explain_reason
    from zmqtriton.diagnosis.rules.files import FileSystem as FileSystem
    from zmqtriton.config.parameters import count_fault as count_fault
else:
    __getattr__ = lazy_names(__name__)
