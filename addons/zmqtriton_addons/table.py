"""The declarations of our own add-ons: tables as those that other packages add to by entry points.

Only text, since each command and each start of the server reads it.
"""

from __future__ import annotations

from typing import Any

TABLES: dict[str, dict[str, str]] = {
    "zmqtriton.commands": {
        "completion": "zmqtriton_addons.commands.completion:run_completion",
        "deploy": "zmqtriton_addons.commands.deploy:run_deploy",
        "protos": "zmqtriton_addons.commands.protos:run_protos",
        "token": "zmqtriton_addons.commands.token:run_token",
        "check": "zmqtriton_addons.tools.checking.command:run_check",
        "demo": "zmqtriton_addons.tools.demo:run_demo",
        "example": "zmqtriton_addons.tools.examples:run_example",
        "fleet": "zmqtriton_addons.fleet.serve.command:run_fleet",
        "new": "zmqtriton_addons.tools.new_model.command:run_new",
        "run": "zmqtriton_addons.tools.run:run_model",
        "simulate": "zmqtriton_addons.tools.simulation.command:run_simulate",
    },
    "zmqtriton.ctl": {
        "batches": "zmqtriton_addons.batches.ctl:batches",
        "bench": "zmqtriton_addons.tools.benching.command:bench",
        "canary": "zmqtriton_addons.ctl.canaries:canary",
        "capture": "zmqtriton_addons.capture.showing:capture",
        "clients": "zmqtriton_addons.ctl.connections:clients",
        "completion": "zmqtriton_addons.ctl.main:completion",
        "config": "zmqtriton_addons.ctl.listing:config",
        "disconnect": "zmqtriton_addons.ctl.connections:disconnect",
        "doctor": "zmqtriton_addons.tools.doctor.command:doctor",
        "drain": "zmqtriton_addons.ctl.drains:drain",
        "env": "zmqtriton_addons.ctl.environments:env",
        "explain": "zmqtriton_addons.tools.explaining.command:explain",
        "fleet": "zmqtriton_addons.fleet.ctl:fleet",
        "infer": "zmqtriton_addons.ctl.inferring:infer",
        "jobs": "zmqtriton_addons.jobs.ctl:jobs",
        "load": "zmqtriton_addons.ctl.loading:load",
        "log-settings": "zmqtriton_addons.ctl.logs:log_settings",
        "logs": "zmqtriton_addons.ctl.logs:logs",
        "models": "zmqtriton_addons.ctl.listing:models",
        "proxy": "zmqtriton_addons.fleet.proxies.command:proxy",
        "reload": "zmqtriton_addons.ctl.reloading:reload",
        "replace": "zmqtriton_addons.ctl.replacing:replace",
        "replay": "zmqtriton_addons.capture.command:replay",
        "repository": "zmqtriton_addons.ctl.loading:repository",
        "restart": "zmqtriton_addons.ctl.reloading:restart",
        "scale": "zmqtriton_addons.ctl.scaling:scale",
        "servers": "zmqtriton_addons.ctl.listing:servers",
        "sleep": "zmqtriton_addons.ctl.scaling:sleep",
        "stacks": "zmqtriton_addons.ctl.stacks:stacks",
        "stats": "zmqtriton_addons.ctl.statistics:stats",
        "status": "zmqtriton_addons.ctl.listing:status",
        "top": "zmqtriton_addons.ctl.statistics:top",
        "undrain": "zmqtriton_addons.ctl.drains:undrain",
        "unload": "zmqtriton_addons.ctl.loading:unload",
        "wait": "zmqtriton_addons.ctl.waiting:wait",
        "wake": "zmqtriton_addons.ctl.scaling:wake",
    },
    "zmqtriton.http": {
        # the first, since others take its routes for others of the server
        "generate": "zmqtriton_addons.generate.extension:EXTENSION",
        "clouds": "zmqtriton_addons.web_apis.clouds:EXTENSION",
        "openai": "zmqtriton_addons.web_apis.openai.extension:EXTENSION",
        "web_sockets": "zmqtriton_addons.web_sockets.extension:EXTENSION",
        "jobs": "zmqtriton_addons.jobs.extension:EXTENSION",
        # behind jobs, which would take its uploads for inferences
        "batches": "zmqtriton_addons.batches.extension:EXTENSION",
        "routes": "zmqtriton_addons.routes.extension:EXTENSION",
        # the last, since it describes the routes of all
        "cockpit": "zmqtriton_addons.cockpit.extension:EXTENSION",
    },
    "zmqtriton.processes": {
        "announcer": "zmqtriton_addons.fleet.announcing",
        "access_log": "zmqtriton_addons.access_log.process",
        "capture": "zmqtriton_addons.capture.process",
        "door": "zmqtriton_addons.door.process",
        "environments": "zmqtriton_addons.environments",
        "jobs": "zmqtriton_addons.jobs.process",
        "metrics": "zmqtriton_addons.metrics",
        "otlp_logs": "zmqtriton_addons.otlp_logs.process",
        "otlp_metrics": "zmqtriton_addons.otlp_metrics.process",
        "routes": "zmqtriton_addons.routes.process",
        "storage": "zmqtriton_addons.storage",
        "token_metrics": "zmqtriton_addons.token_metrics.process",
        "tracer": "zmqtriton_addons.tracing",
    },
    "zmqtriton.features": {
        "canaries": "zmqtriton_addons.canaries.registry:CanaryRegistry",
        "draining": "zmqtriton_addons.draining:Draining",
        "on_demand": "zmqtriton_addons.on_demand:OnDemandLoader",
        "operations": "zmqtriton_addons.operations:Operations",
        "reload_calls": "zmqtriton_addons.reloading:ReloadCalls",
        "reloading": "zmqtriton_addons.reloading:Reloader",
        "repositories": "zmqtriton_addons.operations:RepositoryRegistry",
        "scaling": "zmqtriton_addons.scaling.autoscaler:Autoscaler",
        "sleeping": "zmqtriton_addons.sleeping:Sleeping",
        "storage": "zmqtriton_addons.storage.object_stores:ObjectStores",
    },
    "zmqtriton.parts": {
        "affinity": "zmqtriton_addons.affinity.placement:follow",
        "affinity_problems": "zmqtriton_addons.affinity.problems:affinity_problems",
        "agent_check": "zmqtriton_addons.fleet.agent_check:AgentCheck",
        "control_groups": "zmqtriton_addons.control_groups:prepare_control_groups",
        "division": "zmqtriton_addons.canaries.requests:division",
        "grpcio": "zmqtriton_addons.grpcio:Server",
        "history": "zmqtriton_addons.history.sampler:Sampler",
        "steps_of_models": "zmqtriton_addons.affinity.step:steps_of",
        "parameters_of_canaries": "zmqtriton_addons.canaries.settings",
        "parameters_of_scaling": "zmqtriton_addons.scaling.limits",
        "open_metrics": "zmqtriton_addons.open_metrics:OpenMetrics",
        "stores": "zmqtriton_addons.storage.places",
    },
    "zmqtriton.backends": {
        "routes": "zmqtriton_addons.routes.backend",
        **{
            name: f"zmqtriton_addons.backends.{name}"
            for name in (
                "dyna_sequence",
                "fil",
                "identity",
                "iterative_sequence",
                "onnxruntime",
                "openvino",
                "pytorch",
                "repeat",
                "sequence",
                "square",
                "tensorflow",
                "tensorrt",
                "vllm",
            )
        },
    },
    "zmqtriton.explanations": {
        "model": "zmqtriton_addons.tools.explaining.command:explain_model",
    },
}

#: Services for clients on this machine, by the names of their processes; the values are mostly
#: fields of the options.
LOCAL_SERVICES: dict[str, dict[str, Any]] = {
    "door": {
        "switch": "zmq_door",
        "group": "zmq_door_group",
        "restrictions": "zmq_door_restricted",
    },
    # it has no clients of its own: frontends send requests to the models that it loads
    "routes": {"switch": "routes", "has_socket": False},
    "jobs": {
        "switch": "jobs",
        "options": (
            "state_directory",
            "jobs_keep_secs",
            "jobs_max_bytes",
            "webhook_allow",
            "webhook_secret_file",
        ),
        "check": "zmqtriton_addons.jobs.process.webhooks.signatures:problem",
        "metrics": "zmqtriton_addons.jobs.metrics:metrics",
    },
    "access_log": {
        "switch": "access_log",
        "step": "zmqtriton_addons.access_log.step:access_log",
        "check": "zmqtriton_addons.access_log:problem",
        "metrics": "zmqtriton_addons.access_log.figures:metrics",
    },
    "capture": {
        "switch": "capture",
        "options": ("capture_to", "capture_byte_size"),
        "step": "zmqtriton_addons.capture.step:capture",
        "check": "zmqtriton_addons.capture.options:problem",
        "metrics": "zmqtriton_addons.capture.figures:metrics",
    },
    "token_metrics": {
        "switch": "token_metrics",
        "step": "zmqtriton_addons.token_metrics.step:count_tokens_of",
        "metrics": "zmqtriton_addons.token_metrics.figures:metrics",
    },
    "otlp_metrics": {
        "switch": "otlp_metrics",
        "options": ("otlp_metrics_interval_secs",),
        "check": "zmqtriton_addons.otlp_metrics:problem",
        "metrics": "zmqtriton_addons.otlp_metrics:metrics",
    },
    "otlp_logs": {
        "switch": "otlp_logs",
        "check": "zmqtriton_addons.otlp_logs:problem",
        "metrics": "zmqtriton_addons.otlp_logs:metrics",
    },
}

#: The module that a backend imports, and the packages that bring it.
FRAMEWORKS = {
    "fil": ("treelite", "treelite"),
    "onnxruntime": ("onnxruntime", "onnxruntime"),
    "openvino": ("openvino", "openvino"),
    "pytorch": ("torch", "torch"),
    "tensorflow": ("tensorflow", "tensorflow"),
    "tensorrt": ("tensorrt", "tensorrt cupy-cuda12x"),
    "vllm": ("vllm", "vllm"),
}

#: How each command of `zmqtriton` is used, in the order in which people look for them.
USAGES = {
    "new": "new name [options]              write a first model, its test and a client",
    "run": "run model.py [options]          serve one file, or one model's directory",
    "demo": "demo [directory] [options]      serve example models and print commands to try",
    "example": "example name [directory]        write an example pipeline",
    "check": "check directory ... [options]   find errors in models",
    "simulate": "simulate directory ...          simulate batching settings under load",
    "fleet": "fleet up file                   run servers on a cluster of Ray",
    "completion": "completion bash|zsh|fish         complete commands and options in a shell",
    "deploy": "deploy [kind [directory]]        write units, configurations and manifests",
    "protos": "protos directory                write the .proto files of the gRPC API",
    "token": "token new|list|remove ...       make tokens for clients of a server",
}
