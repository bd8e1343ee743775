"""The model repository on disk: its models, their versions, and repository agents."""

from typing import TYPE_CHECKING

from zmqtriton_floor.lazy_names import lazy_names

#: The names for add-ons, by module.
_NAMES = {
    "agents": "agent_problems",
    "decisions": "Decision KeepDecisions default_root",
    "scan": "CONFIG_FILE Promotion VersionSelection choose_versions find_config find_versions "
    "is_model_directory is_utf8_name misnamed_config_warnings no_model_text not_found_text "
    "not_unique_text scan_model scan_repositories subdirectories",
}

if TYPE_CHECKING:
    from zmqtriton.repository.agents import agent_problems
    from zmqtriton.repository.decisions import Decision, KeepDecisions, default_root
    from zmqtriton.repository.scan import (
        CONFIG_FILE,
        Promotion,
        VersionSelection,
        choose_versions,
        find_config,
        find_versions,
        is_model_directory,
        is_utf8_name,
        misnamed_config_warnings,
        no_model_text,
        not_found_text,
        not_unique_text,
        scan_model,
        scan_repositories,
        subdirectories,
    )
else:
    __getattr__ = lazy_names(__name__, _NAMES)
