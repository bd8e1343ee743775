"""Loads changed code in a fork of the model's template, without a call of preload().

The fork imports the model's own files again. The objects of preload() stay, unless one of its
conditions has changed: its source and everything that this reaches by name (reach.py), the
arguments that it has read, and the other files of the model, by size and time of change. A class
that preload() reaches stays the same object, because its objects stay. Modules keep their
namespaces, where functions of such objects find new functions. Belongs to a template, which has one
thread.
"""

from __future__ import annotations

import gc
import importlib
import os
import stat
import sys
from contextlib import suppress
from types import FunctionType, MethodType, ModuleType
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Set, Tuple

from zmqtriton_floor import wire
from zmqtriton_stub.api import shared
from zmqtriton_stub.imports import package_paths, states_of
from zmqtriton_stub.model import import_class
from zmqtriton_stub.model_code import ModelCode
from zmqtriton_stub.reach import Reach, ReachStart, TopLevel, difference, retained

#: The size and the time of the last change of a file, and its place on the disk.
_Mark = Tuple[int, int, int, int]
_GONE = -1, -1, -1, -1
#: Maximum number of names in the report.
_MAX_NAMES = 5
#: Names in code that preload() reaches: it runs files, or knows where its own file is.
_RUNS_FILES = {"exec", "run_path"}
_KNOWS_PLACE = {"__file__", "get_model_dir"}


class NotKept(Exception):
    """Raised with the reason why the model has to be loaded from the beginning."""


def _recording(name: str) -> Any:
    """Return a method of dict that records the keys that it reads."""
    method = getattr(dict, name)

    def read(own: Arguments, *words: Any) -> Any:
        own.read.update(words[:1] or dict.keys(own))
        return method(own, *words)

    return read


class Arguments(Dict[str, str]):
    """The arguments of preload(), with a record of the names that it has read."""

    def __init__(self, values: Mapping[str, str]) -> None:
        super().__init__(values)
        self.read: Set[str] = set()

    __getitem__, get, pop = map(_recording, ("__getitem__", "get", "pop"))
    __iter__, copy = _recording("__iter__"), _recording("copy")
    keys, values, items = map(_recording, ("keys", "values", "items"))
    setdefault, popitem = map(_recording, ("setdefault", "popitem"))
    __repr__ = _recording("__repr__")


def arguments_of(load: wire.LoadModel) -> Dict[str, str]:
    """Return the arguments of preload()."""
    return {
        "model_config": load.config,
        "model_repository": load.directory,
        "model_version": str(load.version),
        "model_name": load.model,
    }


class Keeping:
    def __init__(self, load: wire.LoadModel, code: ModelCode) -> None:
        """Set up, before the model is imported."""
        self.load, self.code = load, code
        self.files = Files(load)
        self.path = frozenset(sys.path)
        #: The files of imported packages.
        self._packages: Dict[str, Any] = {}
        #: Starts of the search for names that preload() reaches; empty without a preload().
        self.starts: List[ReachStart] = []
        #: The class of a backend, which runs the model's file and can do so again; None without.
        self._backend: Any = None
        #: Names of the arguments that were read, of globals, and of attributes of classes, that
        #: preload() has set, and of its values for pb_utils.shared.
        self.read: Set[str] = set()
        self.globals: Set[Tuple[str, str]] = set()
        self.attributes: Set[Tuple[str, str, str]] = set()
        self.shared: Set[str] = set()

    def preload(self, model_class: Any) -> None:
        """Call the preload() of a class, if it has one. Raises what that raises."""
        preload = getattr(model_class, "preload", None)
        # it imports the model's file by this
        self._backend = model_class if hasattr(model_class, "preload_starts") else None
        self.starts = self._find_starts(model_class)
        if preload is None:
            self._end()
            return
        before, named = {key: dict(space) for key, space in self._spaces()}, shared.names()
        arguments = Arguments(arguments_of(self.load))
        preload(arguments)
        self._end()
        self.read = arguments.read
        self.shared = shared.names() - named
        for (module, of_class), space in self._spaces():
            earlier = before.get((module, of_class))
            for name, value in list(space.items()):
                if name.startswith("__") or (earlier is not None and earlier.get(name) is value):
                    continue
                if of_class and earlier is not None:
                    self.attributes.add((module, of_class, name))
                elif not of_class and (earlier is not None or not self._is_bound(module, name)):
                    self.globals.add((module, name))

    def _end(self) -> None:
        self.files.end()
        self._packages = states_of(package_paths(list(sys.modules.values())))

    def _find_starts(self, model_class: Any) -> List[ReachStart]:
        """Return the starts of a backend, or the starts of the preload() of a class."""
        if hasattr(model_class, "preload_starts"):
            arguments = arguments_of(self.load)
            of_model = [ReachStart(*each) for each in model_class.preload_starts(arguments)]
        else:
            place = model_class.__module__, model_class.__qualname__, "preload"
            of_model = [ReachStart(*place)] if hasattr(model_class, "preload") else []
        own = {name for name, _, _ in self.own_modules()}
        starts = dict.fromkeys(of_model)
        for start in of_model:  # its class may inherit what it uses
            owner = _find(sys.modules.get(start.module), start.name) if start.member else None
            mro = getattr(owner, "__mro__", ())[:-1]
            first = next((each for each in mro if start.member in vars(each)), None)
            for each in mro:
                if each is first or each.__module__ in own:
                    starts[ReachStart(each.__module__, each.__qualname__, start.member)] = None
        return [*starts]

    def own_modules(self) -> Iterator[Tuple[str, ModuleType, str]]:
        """Yield the modules of the model's own files, with the paths of these."""
        root = os.path.join(self.load.directory, "")
        for name, module in list(sys.modules.items()):
            path = getattr(module, "__file__", None)
            if path in self.code.sources and path.startswith(root):
                yield name, module, path

    def forget_paths(self, directory: str) -> None:
        """Take the paths below a directory that a load has added out of `sys.path`."""
        root = os.path.join(directory, "")
        sys.path[:] = [
            each
            for each in sys.path
            if each in self.path or not os.path.join(each, "").startswith(root)
        ]
        importlib.invalidate_caches()

    def _spaces(self) -> Iterator[Tuple[Tuple[str, str], Mapping[str, Any]]]:
        """Yield the namespaces of own modules and of their classes, by module and class."""
        for name, module, _ in self.own_modules():
            yield (name, ""), vars(module)
            for value in list(vars(module).values()):
                if isinstance(value, type) and value.__module__ == name:
                    yield (name, value.__qualname__), vars(value)

    def _is_bound(self, module: str, name: str) -> bool:
        """Return whether the source of a module that preload() has imported binds a name."""
        path = str(sys.modules[module].__file__)
        return bool(TopLevel(self.code.sources[path]).statements(name))

    def renew(self, load: wire.LoadModel, code: ModelCode) -> Any:
        """Import the model again, in a fork of the template; return its class.

        Raises NotKept, and what the model's code raises.
        """
        backend = self._backend
        if backend is None and not load.path.startswith(os.path.join(load.directory, "")):
            raise NotKept("its backend cannot keep what it has loaded")
        renewal = Renewal(self, load, code)
        if self.starts:
            renewal.require_same()
        renewal.forget()
        model_class = backend or import_class(load)
        self.load, self.code = load, code
        if not self.starts:
            self.preload(model_class)
        else:
            renewal.restore(self._find_starts(model_class))
            if backend is not None:
                backend.take_preloaded()
        self.files.renew(load)
        return model_class

    @property
    def made(self) -> List[Any]:
        """Return the values for pb_utils.shared, and objects that a backend has made."""
        own = [*vars(self._backend or object).values()]
        made = [each for each in own if type(each).__module__ not in ("builtins", "abc")]
        return [*made, *(shared.shared(name, str) for name in self.shared)]

    @property
    def packages_changed(self) -> bool:
        """True if files of packages that were imported have changed."""
        return states_of(self._packages) != self._packages

    @property
    def label(self) -> str:
        """Return the names of the objects that stay."""
        names = [name for _, name in self.globals]
        names += [f"{of_class}.{name}" for _, of_class, name in self.attributes]
        names += [f"shared('{name}')" for name in self.shared]
        more = ["…"] if len(names) > _MAX_NAMES else []
        names = [*sorted(names)[:_MAX_NAMES], *more]
        made = [f"what {s.member} made" if s.member else s.name for s in self.starts]
        return ", ".join(names) or " and ".join(dict.fromkeys(made)) or "its imported libraries"


class Renewal:
    """A later load of a template's model, step by step: the same, forgotten, restored."""

    def __init__(self, old: Keeping, load: wire.LoadModel, code: ModelCode) -> None:
        self._old, self._load, self._code = old, load, code
        self._before = old.load
        self._modules = [*old.own_modules()]
        self._sources: Dict[str, TopLevel] = {}
        self._reach = self._new = Reach({}, [])
        #: Error of the new files, which the import also raises; "" without one.
        self._problem = ""
        #: The ids of own classes that stay.
        self._staying: Set[int] = set()
        #: Objects that stay: by module and name, or by module, class and name.
        self._globals: Dict[Tuple[str, str], Any] = {}
        self._attributes: Dict[Tuple[str, str, str], Any] = {}

    def require_same(self) -> None:
        """Raise NotKept if something that preload() depends on has changed."""
        old, new = self._old, self._load
        before, now = arguments_of(self._before), arguments_of(new)
        for name in sorted(old.read):
            if before[name] != now[name]:
                raise NotKept(f"preload reads {name}, which changed")
        if old.packages_changed:
            raise NotKept("installed packages changed")
        self._require_same_files()
        for name, _, path in self._modules:
            self._sources[name] = TopLevel(old.code.sources[path])
        for start in old.starts:
            if start.module not in self._sources:
                raise NotKept(f"{start.label} is not in a file of the model")
            if start.member and self._sources[start.module].class_named(start.name) is None:
                raise NotKept(f"class {start.name} is not at the top level of its file")
        self._reach = Reach(self._sources, old.starts)
        words = self._reach.words
        changed = old.files.changed(new, [*old.code.sources], bool(words & _RUNS_FILES))
        if changed:
            raise NotKept(f"{changed} changed")
        if words & _KNOWS_PLACE and version_directory(self._before) != version_directory(new):
            raise NotKept("preload uses the place of its file, which is of another version now")
        self._compare()

    def _compare(self) -> None:
        files = {name: os.path.basename(self._path_of(module)) for name, module, _ in self._modules}
        try:
            sources = {name: self._find_new(name) for name in self._sources}
            self._new = Reach(sources, self._old.starts)
        except (SyntaxError, ValueError) as error:
            self._problem = f"{error}"
            return
        why = difference(self._reach, self._new, self._old.starts, files)
        if why:
            raise NotKept(why)

    def _require_same_files(self) -> None:
        """Raise NotKept if a file that was loaded by its path has changed, or its backend's."""
        paths, root = {path for _, _, path in self._modules}, self._before.directory
        for path, source in self._old.code.sources.items():
            if path in paths:
                continue
            is_own, now = path.startswith(os.path.join(root, "")), None
            with suppress(OSError), open(self._new_path(path), "rb") as reading:
                now = reading.read()
            if is_own and now != source:
                raise NotKept(f"{os.path.basename(path)} changed")
            if not is_own:
                if now not in (source, None):
                    raise NotKept(f"{path} of its backend changed")
                self._code.sources[path] = source

    def _find_new(self, name: str) -> TopLevel:
        path = self._path_of(sys.modules[name])
        try:
            with open(path, "rb") as reading:
                return TopLevel(reading.read())
        except OSError:
            if name in {module for (module, _), parts in self._reach.parts.items() if parts}:
                raise NotKept(f"{os.path.basename(path)} cannot be read any more") from None
            return TopLevel(b"")

    def _name_of(self, module: str) -> str:
        """Return the new name of a module: a version's package has the name of its directory."""
        first, dot, rest = module.partition(".")
        return f"{self._load.version}{dot}{rest}" if first == str(self._before.version) else module

    def _path_of(self, module: ModuleType) -> str:
        """Return the new path of a module's file."""
        return self._new_path(str(module.__file__))

    def _new_path(self, path: str) -> str:
        before = version_directory(self._before)
        inside = path.startswith(os.path.join(before, ""))
        return version_directory(self._load) + path[len(before) :] if inside else path

    def forget(self) -> None:
        """Prepare another import of the model's own files, over the objects that stay."""
        for name in shared.names() - self._old.shared:
            shared.forget(name)
        for start in self._old.starts:
            self._hold_members(start)
        for module, of_class, name in self._old.attributes:
            value = getattr(_find(sys.modules.get(module), of_class), name, None)
            self._attributes[module, of_class, name] = value
        reached = {module for (module, _), parts in self._reach.parts.items() if parts}
        for module_name, own_module, _ in self._modules:
            if module_name in reached and not self._problem:
                self._hold_globals(module_name, own_module)
        for module_name, _, _ in self._modules:
            del sys.modules[module_name]
        self._refuse_replaced_classes()
        self._old.forget_paths(self._load.directory)

    def _hold_members(self, start: ReachStart) -> None:
        """Hold values of the class; its functions are made again."""
        for module, name in self._reach.parts:
            of_class, dot, member = name.partition(".")
            if dot and (module, of_class) == start[:2]:
                value = vars(_find(sys.modules[module], of_class)).get(member, start)
                if value is not start and not hasattr(value, "__get__"):
                    self._attributes[module, of_class, member] = value

    def _hold_globals(self, name: str, module: ModuleType) -> None:
        tree, names = retained(self._new, name, self._new.sources[name])
        set_here = {made for of_module, made in self._old.globals if of_module == name}
        values = {n: vars(module)[n] for n in sorted(names | set_here) if n in vars(module)}
        new_name, path = self._name_of(name), self._path_of(module)
        for value in values.values():
            if getattr(value, "__module__", None) == name != new_name:
                with suppress(AttributeError, TypeError):
                    value.__module__ = new_name
        self._globals.update({(name, made): values[made] for made in set_here & values.keys()})
        self._staying.update(id(value) for value in values.values() if isinstance(value, type))
        if names:
            self._code.renewed_code[path] = compile(tree, path, "exec", dont_inherit=True)
        self._code.renewed_modules[new_name] = module, values

    def _refuse_replaced_classes(self) -> None:
        """Raise NotKept if an object that stays has code of the model that is made again."""
        names = {each for name, _, _ in self._modules for each in (name, self._name_of(name))}
        named = {name.partition(".")[0] for _, name in self._reach.parts}
        made = self._old.made
        waiting = [*self._globals.values(), *self._attributes.values(), *made]
        seen = {id(each) for each in waiting}
        allowed = {id(each) for each in made}
        while waiting:
            value = waiting.pop()
            kind: Any = value if isinstance(value, FunctionType) else type(value)
            if isinstance(value, MethodType) and isinstance(value.__self__, type):
                kind = value.__self__
            is_same = id(kind) in self._staying or id(value) in allowed
            is_same |= kind is value and kind.__qualname__.partition(".")[0] in named
            if kind.__module__ in names and not is_same:
                text = f"preload made an object of {kind.__qualname__}, which it does not name"
                raise NotKept(text)
            if isinstance(value, (type, ModuleType)):
                continue
            skipped = {id(value.__globals__)} if isinstance(value, FunctionType) else set()
            for each in gc.get_referents(value):
                if id(each) not in seen | skipped and gc.is_tracked(each):
                    seen.add(id(each))
                    waiting.append(each)

    def restore(self, starts: Sequence[ReachStart]) -> None:
        """Set the names that preload() had set. Raises NotKept if a class has gone."""
        old, rename = self._old, self._name_of
        if self._problem:
            raise NotKept(self._problem)
        old.starts = [start._replace(module=rename(start.module)) for start in old.starts]
        if starts != old.starts:
            raise NotKept("another function preloads the model")
        for name in [*self._code.renewed_modules]:
            importlib.import_module(name)  # preload() had imported it
        for (module, name), value in self._globals.items():
            setattr(sys.modules[rename(module)], name, value)
        for (module, of_class, name), value in self._attributes.items():
            owner = _find(sys.modules.get(rename(module)), of_class)
            if owner is None:
                raise NotKept(f"class {of_class} has gone, and preload set {name} in it")
            setattr(owner, name, value)
        old.globals = {(rename(module), name) for module, name in old.globals}
        old.attributes = {(rename(key[0]), *key[1:]) for key in old.attributes}


def _find(place: Any, name: str) -> Any:
    """Return a class by its qualified name in a module; None without one."""
    for part in name.split("."):
        place = getattr(place, part, None)
    return place


class Files:
    """The files besides code that a model depends on, each with its mark.

    For a model with a directory of its own, all files there. For a model in a single file, the
    files that Python opens next to it during the load, and files that are mapped after it.
    """

    def __init__(self, load: wire.LoadModel) -> None:
        self._root = os.path.join(os.path.abspath(load.directory), "")
        self._hears = self._is_single = not os.path.isdir(version_directory(load))
        self._marks: Dict[str, _Mark] = {}
        if self._is_single:
            sys.addaudithook(self._hear)  # which stays: a call for each event of Python
        self.renew(load)

    def _hear(self, event: str, arguments: Tuple[Any, ...]) -> None:
        if self._hears and event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)):
            self._add(os.path.abspath(os.fsdecode(arguments[0])))

    def _add(self, path: str) -> None:
        if path.startswith(self._root) and not path.endswith(".pyc"):
            mark = _mark_of(path)
            if mark != _GONE:
                self._marks[path] = mark

    def end(self) -> None:
        """Record no more files: the load has ended."""
        if self._hears:
            self._hears = False
            with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
                paths = {line[line.find("/") :].rstrip("\n") for line in maps if "/" in line}
            for path in paths:
                self._add(path)

    def changed(self, load: wire.LoadModel, code: Sequence[str], runs_files: bool) -> str:
        """Return the name of a file that has changed; "" if none has.

        `code` are the paths of imported files, which do not count. Other files with code count only
        if the model runs files.
        """
        now = _marks_of(load) if not self._is_single else {p: _mark_of(p) for p in self._marks}
        imported = {os.path.relpath(path, self._home) for path in code} | {*code}
        size = 4 if self._home == version_directory(load) else 2
        for name in sorted(self._marks.keys() | now.keys()):
            is_code = name.endswith(".py") and (name in imported or not runs_files)
            before, after = (marks.get(name, _GONE)[:size] for marks in (self._marks, now))
            if before != after and not is_code:
                return name[len(self._root) :] if self._is_single else name
        return ""

    def renew(self, load: wire.LoadModel) -> None:
        """Take the present files; a model in a single file keeps the files of its first load."""
        self._home = version_directory(load)
        self._marks = self._marks if self._is_single else _marks_of(load)


def _mark_of(path: str) -> _Mark:
    """Return the mark of a regular file."""
    try:
        status = os.stat(path)
    except OSError:
        return _GONE
    mark = status.st_size, status.st_mtime_ns, status.st_ino, status.st_dev
    return mark if stat.S_ISREG(status.st_mode) else _GONE


def _marks_of(load: wire.LoadModel) -> Dict[str, _Mark]:
    """Return the files of a model's directory but for its configuration, also behind links."""
    marks: Dict[str, _Mark] = {}
    home, seen = version_directory(load), set()
    for top in (home, load.directory):
        for directory, folders, files in os.walk(top, followlinks=True):
            is_root, place = directory == load.directory, os.path.realpath(directory)
            if place in seen:
                folders.clear()
                continue
            seen.add(place)
            folders[:] = [each for each in folders if not (is_root and each.isdecimal())]
            for file in files:
                if not (file.endswith(".pyc") or (is_root and file == "config.pbtxt")):
                    path = os.path.join(directory, file)
                    marks[os.path.relpath(path, home)] = _mark_of(path)
    return marks


def version_directory(load: wire.LoadModel) -> str:
    return os.path.join(load.directory, str(load.version))
