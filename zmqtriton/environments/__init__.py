"""The Python of a model: the interpreter from its configuration, and its user.

Both are quick. What makes environments takes minutes, and is an add-on.
"""

from typing import TYPE_CHECKING

from zmqtriton_floor.lazy_names import lazy_names

#: The names for add-ons, by module.
_NAMES = {
    "demand": (
        "ARCHIVE DIRECTORY Environment EnvironmentSpec INTERPRETER REQUIREMENTS "
        "check_directory interpreter_path process_variables resolve_environment"
    ),
    "users": ("IN_USE UserError default_root downloads_directory find_user give_directory"),
}

if TYPE_CHECKING:
    from zmqtriton.environments.demand import (
        ARCHIVE,
        DIRECTORY,
        INTERPRETER,
        REQUIREMENTS,
        Environment,
        EnvironmentSpec,
        check_directory,
        interpreter_path,
        process_variables,
        resolve_environment,
    )
    from zmqtriton.environments.users import (
        IN_USE,
        UserError,
        default_root,
        downloads_directory,
        find_user,
        give_directory,
    )
else:
    __getattr__ = lazy_names(__name__, _NAMES)
