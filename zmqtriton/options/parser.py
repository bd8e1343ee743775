"""Parses argv into Options: reads each option by its row, then checks them against each other.

Reads as getopt_long does: `--name=value`, `--name value`, and any prefix of a name that fits one
option only. Raises; never prints and never exits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from zmqtriton import addons
from zmqtriton.commit import full_version
from zmqtriton.options import sources
from zmqtriton.options.declared import DECLARED, unmet
from zmqtriton.options.help import help_text
from zmqtriton.options.kinds import Arity, KnownOption
from zmqtriton.options.result import DEFAULTS, Options
from zmqtriton.options.table import OPTIONS_BY_NAME
from zmqtriton.options.values import (
    RESTRICTING_OPTIONS,
    BadValue,
    OptionError,
    Restriction,
    Setting,
    option_of,
    trace_options,
    with_exporter_environment,
)
from zmqtriton_floor import hosts
from zmqtriton_floor.errors import closest_match
from zmqtriton_floor.settings.offers import Hook

_HINT = "Try 'zmqtriton --help' for all options."
#: Defaults of the values that rows write and `_resolve_options` turns into fields of Options.
_INTERMEDIATE_DEFAULTS: dict[str, Any] = {
    "disable_auto_complete_config": False,
    "response_cache_byte_size": None,
    "trace_config": (),
    "trace_deprecated": (),
    "allow_client_shm": None,
    "grpc_reflection": None,
    # None tells "given as false" from "not given"
    "strict_model_config": None,
}
#: Fields of Options that these values become.
_DECIDED = {
    "disable_auto_complete_config": "strict_model_config",
    "response_cache_byte_size": "cache_config",
    "trace_config": "trace",
    "trace_deprecated": "trace",
}


class HelpRequested(Exception):
    """Raised for --help and --version; the text is for stdout."""


def with_environment(options: Options, environment: Mapping[str, str]) -> Options:
    """Apply the environment variables that set options. Raises OptionError."""
    sources.check_variables(options, environment)
    return replace(options, trace=with_exporter_environment(options.trace, environment))


def parse(
    argv: list[str],
    *,
    takes_directories: bool = False,
    environment: Mapping[str, str] = MappingProxyType({}),
    read_file: Callable[[str], str] | None = None,
    usual: Sequence[str] = (),
) -> Options:
    """Return the options of argv (without the program's name), files and variables.

    With `takes_directories` every argument that is not an option is a repository. `environment` may
    have options and change defaults; `read_file` reads the file of --config; `usual` are words that
    count if no place has the option. Raises OptionError and HelpRequested.
    """
    of_environment = sources.defaults(environment)
    levels = _read_levels(argv, takes_directories, environment, read_file, usual)
    repositories = of_environment.pop("model_repository", ())
    defaults = {**DEFAULTS, **_INTERMEDIATE_DEFAULTS, **of_environment}
    values = dict(defaults)
    warnings: list[str] = []
    for entry in (each for level in levels for each in level):
        _parse_value(entry)  # a mistake is one even if a higher place has the option, too
    origins: dict[str, str] = {}
    for entry in sources.in_force(levels):
        option, value = entry.option, _parse_value(entry)
        origins[_DECIDED.get(option.field_name, option.field_name)] = entry.source
        if option.warning:
            warnings.append(option.warning)
        if option.arity is Arity.REPEATABLE:
            value = (*values[option.field_name], value)
        # an option that is given with its default needs no warning
        if option.reason and value != defaults[option.field_name]:
            warnings.append(f"accepted and ignored: --{option.name}: {option.reason}")
        values[option.field_name] = value
    if not any(values["model_repository"]):
        values["model_repository"] = repositories
    return replace(_resolve_options(values, warnings), origins=tuple(origins.items()))


def check_document(path: str, text: str) -> None:
    """Check the options of a file, each for itself. Raises OptionError."""
    for entry in sources.read_document(path, text):
        _parse_value(entry)


def _read_levels(
    argv: list[str],
    takes_directories: bool,
    environment: Mapping[str, str],
    read_file: Callable[[str], str] | None,
    usual: Sequence[str],
) -> list[list[sources.Entry]]:
    """Return the entries of each place, the lowest first. Raises OptionError."""
    typed = [*_option_texts(argv, takes_directories)]
    variables = sources.read_variables(environment)
    files = [each.text for each in (*variables, *typed) if each.option.name == sources.CONFIG]
    path = files[-1] if files else ""
    of_file = sources.read_document(path, _read(path, read_file)) if path else []
    of_command = [each._replace(source=sources.COMMAND) for each in _option_texts(usual)]
    return [of_command, of_file, variables, typed]


def _read(path: str, read_file: Callable[[str], str] | None) -> str:
    if read_file is None:
        raise OptionError("Error: use --config only on the command line of a server.")
    try:
        return read_file(path)
    except OSError as error:
        raise OptionError(f"Error: --config: {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise OptionError(f"Error: --config: {path} must be text in UTF-8") from None


def _option_texts(argv: Sequence[str], takes_directories: bool = False) -> Iterator[sources.Entry]:
    """Return each option with the text of its value."""
    words = iter(argv)
    for word in words:
        if takes_directories and not word.startswith("-"):
            yield _typed(OPTIONS_BY_NAME["model-repository"], word)
            continue
        if word in ("-", "--") or not word.startswith("-"):
            raise OptionError(f"Unexpected argument: {word}{_suggest_command(word)}\n{_HINT}")
        name, has_value, text = word.removeprefix("--").partition("=")
        option = _find_option(name, word, [text] if has_value else words)
        if not has_value and option.arity is Arity.SWITCH:
            text = "true"
        elif not has_value:
            following = next(words, None)
            if following is None:
                raise OptionError(f"option '--{option.name}' requires an argument\n{_HINT}")
            text = following
        yield _typed(option, text)


def _typed(option: KnownOption, text: str) -> sources.Entry:
    return sources.Entry(option, text, f'"--{option.name}"', sources.COMMAND_LINE)


def _suggest_command(word: str) -> str:
    """Suggest a command to a user who wrote a word that is not an option."""
    if close := closest_match(word, addons.usages()):
        return f"; did you mean 'zmqtriton {close}'?"
    if word.partition("=")[0] in OPTIONS_BY_NAME:
        return f"; did you mean '--{word}'?"
    is_path = word.strip("-") and "=" not in word
    return f"; did you mean '--model-repository={word}'?" if is_path else ""


def _find_option(name: str, word: str, following: Iterable[str]) -> KnownOption:
    """Return the option with this name, or the only one that begins with it."""
    if word.startswith("--") and name in OPTIONS_BY_NAME:
        return OPTIONS_BY_NAME[name]
    if lack := addons.lack(word.partition("=")[0]):
        raise OptionError(f"--{name}: {lack}")
    names = [*OPTIONS_BY_NAME, "help", "version"]
    fitting = [option for option in names if option.startswith(name)] if word[:2] == "--" else []
    if fitting == ["help"] or word == "-h":
        raise HelpRequested(help_text(next(iter(following), "")))
    if fitting == ["version"]:
        raise HelpRequested(f"zmqtriton {full_version()}")
    if len(fitting) == 1:
        return OPTIONS_BY_NAME[fitting[0]]
    if fitting and name:
        possible = " ".join(f"'--{option}'" for option in fitting)
        raise OptionError(f"option '{word}' is ambiguous; possibilities: {possible}\n{_HINT}")
    bare = name.lstrip("-").replace("_", "-")
    close = bare if bare in names else closest_match(bare, names)
    suggestion = f"; did you mean '--{close}'?" if close else ""
    raise OptionError(f"unrecognized option '{word.partition('=')[0]}'{suggestion}\n{_HINT}")


def _parse_value(entry: sources.Entry) -> Any:
    try:
        return entry.option.read(entry.text)
    except BadValue as error:
        raise OptionError(f"Bad option: {entry.written}.\n{error}") from None


def _resolve_options(values: Mapping[str, Any], warnings: list[str]) -> Options:
    """Check options against each other and resolve the defaults that depend on others."""
    settled = {name: values[name] for name in DEFAULTS}
    settled["strict_model_config"] = _is_strict(values, warnings)
    settled["model_repository"] = _model_repositories(values)
    _check_requirements(values)
    settled["load_model"] = _startup_models(values)
    if values["model_control_mode"] != "poll":
        settled["repository_poll_secs"] = 0
    settled["metrics_address"] = values["metrics_address"] or values["http_address"]
    for measured in ("allow_gpu_metrics", "allow_cpu_metrics"):
        settled[measured] = values[measured] and values["allow_metrics"]
    for service in ("http", "grpc"):
        mutual = values[f"{service}_use_ssl_mutual"]
        settled[f"{service}_use_ssl"] = values[f"{service}_use_ssl"] or mutual
        _check_certificates(service, settled)
    settled["cache_config"] = _cache_settings(values, warnings)
    for name, kind in RESTRICTING_OPTIONS.items():
        _check_restrictions(name, kind, values[name])
    _check_tokens(values)
    for check in CHECK.all_of(addons.offers_in_use(values.__getitem__)):
        if problem := check(values):
            raise OptionError(f"Error: {problem}")
    _check_ports(settled)
    if values["allow_client_shm"] is None:
        served = {port.of for port in addons.ports_in_use(settled.__getitem__)}
        settled["allow_client_shm"] = all(
            hosts.is_loopback(settled[f"{service}_address"])
            for service in ("http", "grpc")
            if settled[f"allow_{service}"] or service in served
        )
    if values["grpc_reflection"] is None:
        settled["grpc_reflection"] = hosts.is_loopback(settled["grpc_address"])
    settled["trace"] = trace_options((*values["trace_deprecated"], *values["trace_config"]))
    settled["warnings"] = tuple(dict.fromkeys(warnings))
    of_add_ons = {option.field: settled.pop(option.field) for option in DECLARED}
    return Options(**settled, of_add_ons=of_add_ons)


def _is_strict(values: Mapping[str, Any], warnings: list[str]) -> bool:
    if not values["disable_auto_complete_config"]:
        return bool(values["strict_model_config"])
    if values["strict_model_config"] is False:
        warnings.append(
            "Warning: Overriding deprecated '--strict-model-config' from False to True "
            "in favor of '--disable-auto-complete-config'!"
        )
    return True


def _model_repositories(values: Mapping[str, Any]) -> tuple[str, ...]:
    # an empty one is an unset variable in somebody's script
    repositories = tuple(dict.fromkeys(path for path in values["model_repository"] if path))
    # a program that has started this may bind its own models
    if not repositories and not values["model_file"] and values["owner_descriptor"] < 0:
        raise OptionError("--model-repository must be specified")
    return repositories


def _startup_models(values: Mapping[str, Any]) -> tuple[str, ...]:
    models = tuple(dict.fromkeys(values["load_model"]))
    if "*" in models and len(models) > 1:
        raise OptionError(
            "Wildcard model name '*' must be the ONLY startup model if specified at all."
        )
    return models


def _check_requirements(values: Mapping[str, Any]) -> None:
    """Refuse options without another one that they require."""
    mode, on_demand = values["model_control_mode"], values["load_on_demand"]
    usual = (0, DEFAULTS["load_on_demand_timeout"])
    has_timeout = values["load_on_demand_timeout"] not in usual
    for name, required, is_lacking in (
        ("load-model", "model-control-mode=explicit", values["load_model"] and mode != "explicit"),
        ("one-by-one", "take-over", values["one_by_one"] and not values["take_over"]),
        ("load-on-demand", "model-control-mode=explicit", on_demand and mode != "explicit"),
        ("load-on-demand-timeout", "load-on-demand", has_timeout and not on_demand),
        *((name, required, True) for name, required in unmet(values)),
    ):
        if is_lacking:
            raise OptionError(f"Error: Use of '--{name}' requires setting '--{required}' as well.")


def _cache_settings(values: Mapping[str, Any], warnings: list[str]) -> tuple[Setting, ...]:
    settings: tuple[Setting, ...] = values["cache_config"]
    size = values["response_cache_byte_size"]
    if size is not None:
        if settings:
            raise OptionError(
                "Error: Incompatible flags --response-cache-byte-size and --cache-config both "
                "provided. Please provide one or the other."
            )
        warnings.append(
            "Warning: '--response-cache-byte-size' has been deprecated! Please use "
            f"'--cache-config=local,size={size}' instead."
        )
        settings = (Setting("local", "size", str(size)),)
    if len({setting.name for setting in settings}) > 1:
        raise OptionError(
            "found multiple cache configurations, but only a single cache is currently supported"
        )
    sizes = [setting.value for setting in settings if setting.key == "size"]
    for setting in settings:
        if setting.name != "local":
            raise OptionError(
                f"unable to find 'libtritoncache_{setting.name}.so' for cache. "
                f"Searched: {values['cache_directory']}"
            )
    if settings and not sizes:
        raise OptionError(
            "Failed to initialize LocalCache: config didn't contain a valid 'size' field."
        )
    if sizes and not re.fullmatch("[0-9]{1,18}", sizes[-1]):
        raise OptionError(f"Failed to initialize LocalCache: '{sizes[-1]}' must be a size in bytes")
    return settings


def _check_restrictions(name: str, kind: str, groups: tuple[Restriction, ...]) -> None:
    categories = [category for group in groups for category in group.categories]
    for index, category in enumerate(categories):
        if category in categories[:index]:
            raise OptionError(
                f"Bad option: \"{option_of(name)}\".\nrestricted {kind} '{category}' "
                "can not be specified in multiple config groups"
            )


def _check_tokens(values: Mapping[str, Any]) -> None:
    """Refuse a key in the header of tokens: no request could have both. Raises OptionError."""
    for name in ("http_restricted_api", "grpc_restricted_protocol") if values["tokens"] else ():
        if any(group.header.lower() == "authorization" for group in values[name]):
            raise OptionError(
                f"Error: '--tokens' takes the header 'authorization', so '{option_of(name)}' needs "
                "another one."
            )


#: Gets all options by field, and returns the text of an error, or "".
CHECK = Hook[Callable[[Mapping[str, Any]], str]]("options.check")


def _check_certificates(service: str, settled: Mapping[str, Any]) -> None:
    needed = ["server-cert", "server-key"] if settled[f"{service}_use_ssl"] else []
    if settled[f"{service}_use_ssl_mutual"]:
        needed.append("root-cert")
    for name in needed:
        if not settled[f"{service}_{name.replace('-', '_')}"]:
            raise OptionError(f"--{service}-use-ssl requires setting '--{service}-{name}' as well.")


def _check_ports(settled: Mapping[str, Any]) -> None:
    """Refuse equal ports, and ports outside the range of an add-on; port 0 is any free one."""
    ports = addons.ports_in_use(settled.__getitem__)
    core = (("HTTP", "http"), ("GRPC", "grpc"), ("metrics", "metrics"))
    used = [
        (name, settled[f"{service}_address"], settled[number])
        for name, service, number in (
            *((name, own, f"{own}_port") for name, own in core if settled[f"allow_{own}"]),
            *((port.requests, port.of, port.number) for port in ports),
        )
        if settled[number]
    ]
    ranges = [(p.requests, settled[p.range_of_others]) for p in ports if p.range_of_others]
    for index, (name, here, number) in enumerate(used):
        for owner, safe in ranges:
            if safe is not None and name != owner and not safe[0] <= number <= safe[1]:
                raise OptionError(
                    f"The server cannot listen to {name} requests at port {number}, allowed "
                    f"port range is [{safe[0]}, {safe[1]}]"
                )
        for other, there, taken in used[:index]:
            if taken == number and (here == there or {here, there} & {"0.0.0.0", "::"}):
                raise OptionError(
                    f"The server cannot listen to {other} requests and {name} requests "
                    f"at the same address and port {there}:{number}"
                )
