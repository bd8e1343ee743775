"""`zmqtriton completion SHELL`: a script that lets a shell complete commands and options."""

from __future__ import annotations

import argparse
import sys

from zmqtriton.sdk.process import addons, options

_BASH = """\
_zmqtriton() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}"
    if [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "{options}" -- "$word"))
    elif ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W "{commands}" -- "$word"))
    fi
}}
complete -o default -F _zmqtriton zmqtriton
"""


def run_completion(words: list[str]) -> int:
    """Run the command and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="zmqtriton completion",
        description="Print the script that completes commands, options and files in SHELL. "
        'In ~/.bashrc: eval "$(zmqtriton completion bash)"',
    )
    parser.add_argument(
        "shell", metavar="SHELL", choices=["bash", "zsh", "fish"], help="%(choices)s"
    )
    sys.stdout.write(script(parser.parse_args(words).shell))
    return 0


def script(shell: str) -> str:
    if shell == "fish":
        lines = [
            f"complete -c zmqtriton -n __fish_use_subcommand -f -a {name}\n"
            for name in sorted(addons.usages())
        ]
        return "".join(
            lines + [f"complete -c zmqtriton -l {name}\n" for name in options.OPTIONS_BY_NAME]
        )
    text = _BASH.format(
        options=" ".join(f"--{name}" for name in options.OPTIONS_BY_NAME),
        commands=" ".join(sorted(addons.usages())),
    )
    return "autoload -U +X bashcompinit && bashcompinit\n" + text if shell == "zsh" else text
