"""The Python of a model: what its configuration asks for, and how that is made.

`demand` is quick and used when a model is read. The rest may take minutes: for the supervisor a
child process does it (`__main__`), and `zmqtriton-ctl env prepare` does it itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zmqtriton_floor.lazy_names import lazy_names

#: The names for add-ons, by module.
_NAMES = {
    "ahead": "ModelEnvironment read_environments",
    "cache": "CacheEntry EnvironmentCache default_root",
    "demand": "ARCHIVE DIRECTORY Environment EnvironmentSpec INTERPRETER REQUIREMENTS "
    "SERVER_ENVIRONMENT ignored_stub_warnings interpreter_path resolve_environment",
    "interpreters": "candidate_paths not_found_text",
    "prepare": "prepare_environment",
    "programs": "find_uv",
    "unpack": "check_archive",
    "users": "StubUsers UserError downloads_directory find_user give_directory",
}

if TYPE_CHECKING:
    from zmqtriton.environments.ahead import ModelEnvironment, read_environments
    from zmqtriton.environments.cache import CacheEntry, EnvironmentCache, default_root
    from zmqtriton.environments.demand import (
        ARCHIVE,
        DIRECTORY,
        INTERPRETER,
        REQUIREMENTS,
        SERVER_ENVIRONMENT,
        Environment,
        EnvironmentSpec,
        ignored_stub_warnings,
        interpreter_path,
        resolve_environment,
    )
    from zmqtriton.environments.interpreters import candidate_paths, not_found_text
    from zmqtriton.environments.prepare import prepare_environment
    from zmqtriton.environments.programs import find_uv
    from zmqtriton.environments.unpack import check_archive
    from zmqtriton.environments.users import (
        StubUsers,
        UserError,
        downloads_directory,
        find_user,
        give_directory,
    )
else:
    __getattr__ = lazy_names(__name__, _NAMES)
