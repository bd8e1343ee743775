"""The options of add-ons, as rows of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_origin

from zmqtriton import addons
from zmqtriton.addons import DeclaredOption
from zmqtriton.options import values
from zmqtriton.options.kinds import Arity, KnownOption, custom
from zmqtriton_floor.lazy_names import load_reference
from zmqtriton_floor.settings.offers import Hook

#: Reader of a type's values, name of the type in `--help`, and the number of times that an option
#: of it may be given.
_KINDS: dict[Any, tuple[Callable[[str], Any], str, Arity]] = {
    bool: (values.boolean, "boolean", Arity.SWITCH),
    int: (values.count, "integer", Arity.LAST_WINS),
    float: (values.number, "float", Arity.LAST_WINS),
    str: (str, "string", Arity.LAST_WINS),
    tuple: (str, "string", Arity.REPEATABLE),
}


#: Title of the group in `--help` after which your group of options is printed.
BEHIND = Hook[str]("options.behind")
#: The options of all add-ons.
DECLARED: tuple[DeclaredOption, ...] = tuple(
    option for options in addons.options().values() for option in options
)


def with_declared(groups: dict[str, tuple[KnownOption, ...]]) -> dict[str, tuple[KnownOption, ...]]:
    """Return all groups of options, with the add-ons' groups in their places."""
    groups, last = {**groups}, [*groups][-1]
    for name, each in addons.add_ons().items():
        behind = str(each.declared.offers.get(BEHIND.name, ""))
        for option in addons.options()[name]:
            group = option.declared.group or each.declared.title or each.declared.name
            if group not in groups:
                groups = _inserted(groups, group, behind, before=last)
                behind = group
            groups[group] = (*groups[group], _row(option, each))
    return groups


def _inserted(
    groups: dict[str, tuple[KnownOption, ...]], group: str, behind: str, *, before: str
) -> dict[str, tuple[KnownOption, ...]]:
    names = [*groups]
    place = names.index(behind) + 1 if behind in names else names.index(before)
    names.insert(place, group)
    return {name: groups.get(name, ()) for name in names}


def _row(option: DeclaredOption, add_on: addons.Installed) -> KnownOption:
    declared, kind = option.declared, get_origin(option.kind) or option.kind
    if declared.read:
        read, metavar = _reader(add_on.reference(declared.read)), "value"
        arity = Arity.REPEATABLE if kind is tuple else Arity.LAST_WINS
    else:
        read, metavar, arity = _KINDS[kind]
    make = custom(declared.metavar or metavar, read, arity)
    return make(option.name, declared.help, reason=declared.ignored)


def _reader(reference: str) -> Callable[[str], Any]:
    return lambda text: load_reference(reference)(text)


def unmet(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each option that requires another option which is not set, and that other option."""
    for option in DECLARED:
        required = option.declared.requires
        is_used = required and values[option.field] != option.default
        if is_used and not values[required.replace("-", "_")]:
            yield option.name, required
