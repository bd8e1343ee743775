"""`zmqtriton-ctl`: shows what a running server on this machine does, and commands it.

Uses nothing of the server but the control socket in its runtime directory.
"""

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "ctl",
    needs=(
        "environments",
        "metrics",
    ),
    ctl={
        "clients": ".connections:clients",
        "completion": ".main:completion",
        "config": ".status:config",
        "disconnect": ".connections:disconnect",
        "drain": ".drains:drain",
        "env": ".environments:env",
        "infer": ".inferring:infer",
        "load": ".loading:load",
        "log-settings": ".logs:log_settings",
        "logs": ".logs:logs",
        "models": ".status:models",
        "reload": ".loading:reload",
        "replace": ".replacing:replace",
        "repository": ".loading:repository",
        "restart": ".loading:restart",
        "scale": ".loading:scale",
        "servers": ".status:servers",
        "sleep": ".loading:sleep",
        "stacks": ".stacks:stacks",
        "stats": ".statistics:stats",
        "status": ".status:status",
        "top": ".statistics:top",
        "undrain": ".drains:undrain",
        "unload": ".loading:unload",
        "wait": ".waiting:wait",
        "wake": ".loading:wake",
    },
    offers={
        "ctl.group": {
            "Look": "clients config models servers stats status top",
            "Health and logs": "log-settings logs wait",
            "Load and change models": "env load reload repository restart scale sleep unload wake",
            "Send requests": "disconnect infer",
            "Debug a model": "stacks",
            "Drain and replace servers": "drain replace undrain",
            "Several servers": "",
            "Shell": "completion",
        }
    },
)
