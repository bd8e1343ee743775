"""Compares what a model's code names with what it will find: modules and tensors."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from zmqtriton_addons.tools.checking.models import ModelFindings
from zmqtriton_addons.tools.checking.sources import SourceFact
from zmqtriton_floor.errors import closest_match

#: The server brings these along.
_OWN_MODULES = frozenset({"triton_python_backend_utils", "c_python_backend_utils"})
NAMING = frozenset({"import", "input", "output"})


def missing_name_warning(fact: SourceFact, model: ModelFindings, path: Path) -> str:
    """Return the error about a name in the code of a model, or ""."""
    if fact.kind == "import":
        return _module_warning(fact.text, model, path)
    return _tensor_warning(fact.kind, fact.text, model)


def _module_warning(name: str, model: ModelFindings, path: Path) -> str:
    if not model.has_server_environment or name in _OWN_MODULES or _is_beside(name, path):
        return ""
    try:
        is_known = find_spec(name) is not None
    except (ImportError, ValueError):
        is_known = name in sys.modules
    return "" if is_known else f"{sys.executable} has no module '{name}', which is imported here"


def _is_beside(name: str, path: Path) -> bool:
    """True if the model brings the module along."""
    folders = (path.parent, path.parent.parent)
    return any((each / name).is_dir() or (each / f"{name}.py").is_file() for each in folders)


def _tensor_warning(kind: str, name: str, model: ModelFindings) -> str:
    config = model.config
    names = [tensor.name for tensor in (config.input if kind == "input" else config.output)]
    if kind == "output":  # a state may be made as one
        names += [state.output_name for state in config.sequence_batching.state]
    else:
        names += [state.input_name for state in config.sequence_batching.state]
        names += [one.name for one in config.sequence_batching.control_input]
        names += [name for one in config.batch_input for name in one.target_name]
    if not names or name in names or model.has_auto_completion:
        return ""
    meant = closest_match(name, names)
    hint = f"did you mean '{meant}'?" if meant else f"it names {', '.join(names)}"
    return f"the configuration has no {kind} '{name}'; {hint}"
