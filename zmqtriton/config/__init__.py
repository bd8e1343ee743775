"""A model's configuration: read, completed, checked, and shown as clients expect it.

Start in `model_config`; each of the other modules has one part of its work. Nothing here logs,
starts a process or knows of running instances.
"""

from typing import TYPE_CHECKING

from zmqtriton_floor.lazy_names import lazy_names

#: The names for add-ons, by module.
_NAMES = {
    "backends": "backend_places find_model_file find_runtime models_in",
    "errors": "ConfigError FieldPath Problem",
    "instances": "MAX_INSTANCES apply_group_defaults instance_specs",
    "model_config": "ModelHost load_config merge_completion",
    "parameters": "Quota USUAL_CPU_WEIGHT parameter_text whole_number_problem",
    "pbtxt": "parse_json parse_text read_config read_text to_dict to_json to_text",
}

if TYPE_CHECKING:
    from zmqtriton.config.backends import backend_places, find_model_file, find_runtime, models_in
    from zmqtriton.config.errors import ConfigError, FieldPath, Problem
    from zmqtriton.config.instances import MAX_INSTANCES, apply_group_defaults, instance_specs
    from zmqtriton.config.model_config import ModelHost, load_config, merge_completion
    from zmqtriton.config.parameters import (
        USUAL_CPU_WEIGHT,
        Quota,
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
else:
    __getattr__ = lazy_names(__name__, _NAMES)
