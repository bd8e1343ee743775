"""The model repository on disk: its models, their versions, and repository agents."""

from typing import TYPE_CHECKING

from zmqtriton_floor.lazy_names import lazy_names

#: The names for add-ons, by module.
_NAMES = {
    "decisions": "Decision KeepDecisions default_root",
    "scan": (
        "CONFIG_FILE Promotion VersionSelection choose_versions find_config "
        "find_versions is_model_directory scan_model scan_repositories "
        "subdirectories"
    ),
}

if TYPE_CHECKING:
    from zmqtriton.repository.decisions import Decision, KeepDecisions, default_root
    from zmqtriton.repository.scan import (
        CONFIG_FILE,
        Promotion,
        VersionSelection,
        choose_versions,
        find_config,
        find_versions,
        is_model_directory,
        scan_model,
        scan_repositories,
        subdirectories,
    )
else:
    __getattr__ = lazy_names(__name__, _NAMES)
