"""Models on disk: their configurations, directories and environments, and findings about them.

Checks, commands and the processes that prepare models import this; features of the supervisor use
it for names and texts alone.
"""

from typing import TYPE_CHECKING

from zmqtriton_floor.lazy_names import lazy_names

if TYPE_CHECKING:
    from zmqtriton import figures as figures
    from zmqtriton.config import (
        backends as backends,
        instances as instances,
        model_config as model_config,
        parameters as parameters,
        pbtxt as pbtxt,
    )
    from zmqtriton.config.errors import ConfigError as ConfigError, Problem as Problem
    from zmqtriton.config.files import ClientFile as ClientFile
    from zmqtriton.config.parameters import parameter_text as parameter_text
    from zmqtriton.diagnosis.doctor import diagnose as diagnose
    from zmqtriton.diagnosis.explain import explain as explain, explain_version as explain_version
    from zmqtriton.diagnosis.facts import asking as asking
    from zmqtriton.diagnosis.facts.places import Frame as Frame
    from zmqtriton.diagnosis.facts.served import (
        AnswerReader as AnswerReader,
        Facts as Facts,
        StepTimes as StepTimes,
    )
    from zmqtriton.diagnosis.facts.target import Chapter as Chapter, Target as Target
    from zmqtriton.diagnosis.rules import causes as causes, files as files
    from zmqtriton.environments import users as users
    from zmqtriton.findings import (
        Finding as Finding,
        Severity as Severity,
        error as error,
        note as note,
        warning as warning,
    )
    from zmqtriton.repository import scan as scan
    from zmqtriton.repository.file_state import file_state as file_state
    from zmqtriton.store_places import is_remote as is_remote
    from zmqtriton_floor.signature import config_parameter as config_parameter
    from zmqtriton_stub import api as api, model as model, played as played
    from zmqtriton_stub.api import dlpack as dlpack
    from zmqtriton_stub.memory import gpu as gpu
    from zmqtriton.environments.demand import (
        Environment as Environment,
        EnvironmentSpec as EnvironmentSpec,
        resolve_environment as resolve_environment,
    )
    from zmqtriton.diagnosis.facts.sources import (
        SourceFact as SourceFact,
        check_sources as check_sources,
    )
    from zmqtriton.repository.decisions import (
        Decision as Decision,
        KeepDecisions as KeepDecisions,
        default_root as default_root,
    )
else:
    __getattr__ = lazy_names(__name__)
