"""Changed code in the process that serves the earlier code, for instances that are threads.

The model's own files are imported again, as new modules: the earlier ones stay with the instances
that use them. Only code whose TritonPythonModel has a method adopt() comes here, since importing it
twice must be right. An instance of it takes what it needs from the earlier instance of its name.
"""

from __future__ import annotations

import copy
import json
import sys
import threading
from typing import Any, Callable, Optional, Tuple

from zmqtriton_floor import wire
from zmqtriton_stub import instance as this_process
from zmqtriton_stub.api.errors import clip, reason_of
from zmqtriton_stub.broker.model_metrics import ModelMetrics
from zmqtriton_stub.keeping import Keeping, NotKept, arguments_of
from zmqtriton_stub.model import PythonModel, import_class
from zmqtriton_stub.own_process import check_files
from zmqtriton_stub.template import Loaded, follow_code

_NO_ADOPT = "its TritonPythonModel has no method adopt()"


class Renewed:
    """The code of some instances of this process: the first, or changed code."""

    def __init__(self, loaded: Loaded, *, is_preloaded: bool = True) -> None:
        self.loaded = loaded
        self._is_preloaded = is_preloaded
        self._lock = threading.Lock()
        self._measures: Optional[ModelMetrics] = loaded.template.measures

    def take_measures(self) -> Optional[ModelMetrics]:
        """Return the metrics that model.py and preload() have made, to the first instance."""
        with self._lock:
            measures, self._measures = self._measures, None
        return measures

    def choose_predecessor(self, served: Optional[PythonModel]) -> Optional[PythonModel]:
        """Return the model to adopt from: the one that has served, if its code is other code.

        Without one, the instance is initialized, which may need what preload() makes.
        """
        model_class = self.loaded.model_class
        if served is not None and served.model_class not in (None, model_class):
            return served
        with self._lock:
            if not self._is_preloaded and hasattr(model_class, "preload"):
                model_class.preload(arguments_of(self.loaded.keeping.load))
            self._is_preloaded = True
        return None


def renew(
    load: wire.LoadModel, old: Loaded, tell: Callable[[Any], None]
) -> Tuple[Optional[Renewed], str]:
    """Return the changed code, or None and the reason why a new process must load it."""
    template = this_process.StubInstance(load, tell)
    this_process.take_thread(template)
    config = json.loads(load.config)
    keeping = copy.copy(old.keeping)
    try:
        with open(load.path, "rb") as file:
            if b"def adopt(" not in file.read():
                raise NotKept(_NO_ADOPT)
        check_files(config, load.directory)
        keeping.load, keeping.code = load, follow_code(load)
        model_class = _import(load, old.keeping)
    except NotKept as reason:
        return None, str(reason)
    except BaseException as error:  # noqa: BLE001 - the model's code may raise anything
        return None, clip(f"the process of the earlier code: {reason_of(error).text}")
    return Renewed(Loaded(template, model_class, config, keeping), is_preloaded=False), ""


def _import(load: wire.LoadModel, old: Keeping) -> Any:
    """Import the model's own files as new modules; the earlier ones come back if that fails."""
    path, modules = sys.path[:], {name: module for name, module, _ in old.own_modules()}
    for name in modules:
        del sys.modules[name]
    old.forget_paths(load.directory)
    try:
        model_class = import_class(load)
        if not hasattr(model_class, "adopt"):
            raise NotKept(_NO_ADOPT)
    except BaseException:
        sys.path[:] = path
        sys.modules.update(modules)
        raise
    return model_class
