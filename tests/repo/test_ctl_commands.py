"""Every command of zmqtriton-ctl is explained, is tested against a server, and prints documents."""

from __future__ import annotations

import re

import click

from tests.support.needs import ROOT, file_of
from tools.commands import click_commands
from zmqtriton import addons
from zmqtriton.ctl.main import cli

_CHANGES_A_FLEET = (
    "extras/fleet/system/test_fleet.py::test_each_server_is_shown_changed_and_drained"
)
_STEERS_CANARIES = "standard/ctl/system/test_ctl_results.py::test_canaries_are_steered_by_command"
_CHANGES_JOBS = "extras/jobs/system/test_ctl.py::test_jobs_are_listed_retried_and_purged"
_CHANGES_BATCHES = (
    "extras/jobs/batches/system/test_batches.py::test_the_operator_sees_and_cancels_batches_of_all"
)
#: The command with its test, below tests/system, or that of an add-on below tests.
TESTED = {
    "clients": (
        "standard/ctl/system/test_connections.py::"
        "test_a_client_is_thrown_out_by_its_token_with_all_its_streams"
    ),
    "disconnect": (
        "standard/ctl/system/test_connections.py::"
        "test_a_client_is_thrown_out_by_its_token_with_all_its_streams"
    ),
    "batches cancel": _CHANGES_BATCHES,
    "bench": "standard/ctl/system/test_ctl_results.py"
    "::test_a_benchmark_has_a_row_for_each_concurrency_and_says_where_the_time_goes",
    "canary abort": _STEERS_CANARIES,
    "canary promote": _STEERS_CANARIES,
    "canary set": _STEERS_CANARIES,
    "canary start": _STEERS_CANARIES,
    "canary status": _STEERS_CANARIES,
    "canary weight": _STEERS_CANARIES,
    "capture show": "extras/capture/system/test_capture.py"
    "::test_an_error_is_recorded_with_its_code",
    "completion": "standard/ctl/system/test_ctl_results.py"
    "::test_a_shell_completes_commands_and_models",
    "config": "standard/ctl/system/test_ctl_upkeep.py::test_the_configuration_in_use_is_shown",
    "doctor": "standard/tools/system/test_doctor.py"
    "::test_a_server_that_is_well_and_one_that_is_stopped",
    "debug": "extras/inspection/system/test_debug.py"
    "::test_a_breakpoint_waits_for_the_debugger_which_sees_the_models_variables",
    "drain": "standard/draining/system/test_draining.py"
    "::test_the_operator_drains_and_unloads_a_model",
    "env clean": "loads/test_environments.py"
    "::test_a_running_servers_environments_are_listed_and_not_cleaned",
    "env list": "loads/test_environments.py"
    "::test_a_running_servers_environments_are_listed_and_not_cleaned",
    "env prepare": "loads/test_environments.py::server",
    "explain": "standard/tools/system/test_server_trouble.py"
    "::test_models_that_raise_die_or_fail_are_explained",
    "fleet drain": _CHANGES_A_FLEET,
    "fleet infer": "extras/fleet/system/test_fleet.py::test_one_request_is_asked_on_each_server",
    "fleet load": _CHANGES_A_FLEET,
    "fleet rollout": _CHANGES_A_FLEET,
    "fleet status": _CHANGES_A_FLEET,
    "fleet undrain": _CHANGES_A_FLEET,
    "fleet unload": _CHANGES_A_FLEET,
    "infer": "standard/ctl/system/test_ctl_infer.py::test_inputs_are_words_files_and_json",
    "tune": "extras/tuning/system/test_tune.py"
    "::test_settings_are_found_with_captured_requests_and_nothing_is_changed",
    **dict.fromkeys(("jobs purge", "jobs retry"), _CHANGES_JOBS),
    "load": "standard/ctl/system/test_ctl_results.py"
    "::test_results_are_documents_where_they_are_asked_for",
    "log-settings": "protocols/test_settings.py"
    "::test_log_settings_are_shown_and_changed_by_the_command",
    "logs": "standard/ctl/system/test_ctl.py::test_logs_are_the_servers_and_those_of_a_model",
    "models": "standard/draining/system/test_draining.py"
    "::test_a_model_that_drains_is_not_ready_and_answers",
    "memory": "extras/inspection/system/test_memory.py"
    "::test_of_a_leak_the_line_and_its_holder_are_named",
    "profile": "extras/inspection/system/test_profile.py"
    "::test_the_lines_where_a_model_computes_are_named",
    "proxy": "extras/fleet/system/test_fleet.py"
    "::test_each_proxy_deals_requests_of_one_connection_to_both_servers",
    "reload": "standard/ctl/system/test_ctl_upkeep.py"
    "::test_what_has_changed_is_reloaded_in_mode_none",
    "replay": "extras/capture/system/test_day.py"
    "::test_a_day_replays_equal_on_a_new_process_and_a_changed_model_is_found",
    "repository register": "loads/test_model_control.py"
    "::test_repositories_are_added_and_taken_away_by_command",
    "repository unregister": "loads/test_model_control.py"
    "::test_repositories_are_added_and_taken_away_by_command",
    "replace": "replacements/test_directories.py::test_a_server_is_replaced_by_a_command",
    "restart": "standard/ctl/system/test_ctl_results.py"
    "::test_results_are_documents_where_they_are_asked_for",
    "scale": "loads/test_steering.py::test_the_operator_scales_a_model",
    "servers": "standard/ctl/system/test_ctl_results.py"
    "::test_results_are_documents_where_they_are_asked_for",
    **dict.fromkeys(
        ("sleep", "wake"),
        "standard/sleeping/test_sleeping_models.py"
        "::test_a_sleeping_model_gives_its_memory_back_and_wakes_up_for_a_request",
    ),
    "stacks": "standard/ctl/system/test_ctl.py::test_stubs_tell_where_they_are_and_go_on",
    "stats": "standard/ctl/system/test_ctl_infer.py::test_statistics_have_rates_and_means",
    "status": "standard/ctl/system/test_ctl.py::test_the_status_is_the_real_processes_and_counts",
    "top": "standard/ctl/system/test_ctl_infer.py::test_the_live_view_ends_with_q",
    "undrain": "standard/draining/system/test_draining.py"
    "::test_a_model_that_drains_is_not_ready_and_answers",
    "unload": "standard/ctl/system/test_ctl_results.py"
    "::test_results_are_documents_where_they_are_asked_for",
    "wait": "standard/ctl/system/test_ctl_infer.py::test_waiting_ends_when_the_model_is_ready",
}
#: Commands that print in one form only: a live view, and what other programs read.
OF_ONE_FORM = {"completion", "debug", "proxy", "top"}


BY_WORDS = {
    " ".join(words): command
    for words, command in click_commands(cli)
    if not isinstance(command, click.Group)
}
COMMANDS = sorted(BY_WORDS)


def test_each_has_a_test_against_a_server() -> None:
    assert COMMANDS == sorted(TESTED)
    for place in TESTED.values():
        file, _, name = place.partition("::")
        is_of_add_on = file.startswith(("standard/", "extras/"))
        path = file_of(file if is_of_add_on else f"system/{file}")
        assert f"def {name}(" in path.read_text("utf-8"), place


def test_each_is_in_the_reference_and_in_the_manual() -> None:
    page = (ROOT / "docs/reference/command-lines.md").read_text("utf-8")
    manual = (ROOT / "man/zmqtriton-ctl.1").read_text("utf-8").replace("\\-", "-")

    for command in COMMANDS:
        assert re.search(rf"^`zmqtriton-ctl {command}[ `]", page, re.MULTILINE), command
        assert f'.SS "{command}' in manual


def test_each_prints_documents_for_programs() -> None:
    assert {*OF_ONE_FORM} == {
        command
        for command in COMMANDS
        if not any("--output" in parameter.opts for parameter in BY_WORDS[command].params)
    }


def test_each_option_of_seconds_tells_its_default_in_one_form() -> None:
    options = {
        (*words, option.opts[0]): option.help or ""
        for words, command in click_commands(cli)
        for option in command.params
        if isinstance(option, click.Option) and option.metavar in ("S", "SECONDS")
    }

    assert ("wait", "--timeout") in options
    form = re.compile(r"Seconds .*\. Default is (any time|[0-9.]+)\.")
    assert [] == [words for words, text in options.items() if not form.fullmatch(text)]


def test_the_help_has_all_commands_in_groups_and_none_is_cut() -> None:
    commands = {words[0]: each for words, each in click_commands(cli) if len(words) == 1}
    text = cli.get_help(click.Context(cli, terminal_width=100))

    groups = addons.verbs()
    assert (8, True, False) == (len({*groups.values()}), len(groups) > 30, "" in groups.values())
    for name, command in commands.items():
        listed = text.partition(f"\n{groups[name]}:\n")[2].partition("\n\n")[0]
        purpose = (command.help or "").partition("\n")[0]
        assert re.search(rf"(?m)^  {name} +{re.escape(purpose)}$", listed), name
