"""Commands of `zmqtriton` that write files for operators."""

from zmqtriton.sdk import AddOn, Command

ADDON = AddOn(
    "commands",
    after=("tools",),
    commands={
        "completion": Command(
            ".completion:run_completion",
            "completion bash|zsh|fish         complete commands and options in a shell",
        ),
        "deploy": Command(
            ".deploy:run_deploy",
            "deploy [kind [directory]]        write units, configurations and manifests",
        ),
        "protos": Command(
            ".protos:run_protos",
            "protos directory                write the .proto files of the gRPC API",
        ),
        "token": Command(
            ".token:run_token",
            "token new|list|remove ...       make tokens for clients of a server",
        ),
    },
)
