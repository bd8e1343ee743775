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
    "archive_check": "check_archive",
    "cache": "default_root",
    "demand": "ARCHIVE DIRECTORY EnvironmentSpec INTERPRETER REQUIREMENTS SERVER_ENVIRONMENT "
    "ignored_stub_warnings interpreter_path resolve_environment",
    "interpreters": "candidate_paths not_found_text",
    "programs": "find_uv",
    "users": "StubUsers UserError find_user",
}

if TYPE_CHECKING:
    from zmqtriton.environments.ahead import ModelEnvironment, read_environments
    from zmqtriton.environments.archive_check import check_archive
    from zmqtriton.environments.cache import default_root
    from zmqtriton.environments.demand import (
        ARCHIVE,
        DIRECTORY,
        INTERPRETER,
        REQUIREMENTS,
        SERVER_ENVIRONMENT,
        EnvironmentSpec,
        ignored_stub_warnings,
        interpreter_path,
        resolve_environment,
    )
    from zmqtriton.environments.interpreters import candidate_paths, not_found_text
    from zmqtriton.environments.programs import find_uv
    from zmqtriton.environments.users import StubUsers, UserError, find_user
else:
    __getattr__ = lazy_names(__name__, _NAMES)
