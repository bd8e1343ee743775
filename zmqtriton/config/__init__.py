"""A model's configuration: read, completed, checked, and shown as clients expect it.

Start in `model_config`; each of the other modules has one part of its work. Nothing here logs,
starts a process or knows of running instances.
"""

from typing import TYPE_CHECKING

from zmqtriton_floor.lazy_names import lazy_names

#: The names for add-ons, by module.
_NAMES = {
    "backends": "BackendPlace PYTHON PYTHON_FILE backend_places complete_backend find_model_file "
    "find_runtime frameworks models_in",
    "ensembles": (
        "check_cycle check_members member_names member_problems no_loaded_version_text "
        "version_not_loaded_text"
    ),
    "errors": "ConfigError FieldPath Problem",
    "files": "client_files path_problems read_client_files unreadable_file_problems",
    "instances": "MAX_INSTANCES apply_group_defaults group_problems instance_specs",
    "known_parameters": "misspelt_parameter_problems own_parameter_problems",
    "model_config": "ModelHost apply_defaults load_config merge_completion source_of",
    "parameters": (
        "BLS_MODELS "
        "INSTANCES MAX_STREAMS Quota USUAL_CPU_WEIGHT declared_callees "
        "load_timeout_s parameter_text whole_number_problem"
    ),
    "pbtxt": "parse_json parse_text read_config read_text to_dict to_json to_text",
    "positions": "PositionIndex locate unknown_name_problems",
    "states": "state_problems",
    "validation": "config_problems tensor_problems",
}

if TYPE_CHECKING:
    from zmqtriton.config.backends import (
        PYTHON,
        PYTHON_FILE,
        BackendPlace,
        backend_places,
        complete_backend,
        find_model_file,
        find_runtime,
        frameworks,
        models_in,
    )
    from zmqtriton.config.ensembles import (
        check_cycle,
        check_members,
        member_names,
        member_problems,
        no_loaded_version_text,
        version_not_loaded_text,
    )
    from zmqtriton.config.errors import ConfigError, FieldPath, Problem
    from zmqtriton.config.files import (
        client_files,
        path_problems,
        read_client_files,
        unreadable_file_problems,
    )
    from zmqtriton.config.instances import (
        MAX_INSTANCES,
        apply_group_defaults,
        group_problems,
        instance_specs,
    )
    from zmqtriton.config.known_parameters import (
        misspelt_parameter_problems,
        own_parameter_problems,
    )
    from zmqtriton.config.model_config import (
        ModelHost,
        apply_defaults,
        load_config,
        merge_completion,
        source_of,
    )
    from zmqtriton.config.parameters import (
        BLS_MODELS,
        INSTANCES,
        MAX_STREAMS,
        USUAL_CPU_WEIGHT,
        Quota,
        declared_callees,
        load_timeout_s,
        parameter_text,
        whole_number_problem,
    )
    from zmqtriton.config.pbtxt import (
        parse_json,
        parse_text,
        read_config,
        read_text,
        to_dict,
        to_json,
        to_text,
    )
    from zmqtriton.config.positions import PositionIndex, locate, unknown_name_problems
    from zmqtriton.config.states import state_problems
    from zmqtriton.config.validation import config_problems, tensor_problems
else:
    __getattr__ = lazy_names(__name__, _NAMES)
