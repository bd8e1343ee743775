"""Every option of the command line, one row each, grouped as `--help` shows them.

Add-ons declare their own, which are put into the groups here.

The defaults are in Options. A row says how the text is read and what becomes of it: when an option
starts to be honoured, only its row changes.
"""

from __future__ import annotations

from zmqtriton.options import kinds as a
from zmqtriton.options import values as read
from zmqtriton.options.declared import with_declared
from zmqtriton.options.kinds import KnownOption
from zmqtriton.options.values import (
    DEPRECATED_TRACE_OPTIONS,
    HTTP_CATEGORIES,
    trace_setting,
)

CONFIG_OPTION = a.text(
    "config",
    "File in TOML with options, each by its name: http-port = 8000. Environment variables such as "
    "ZMQTRITON_OPTION_HTTP_PORT also set options. Precedence: command line, then variables, then "
    "file. The values of a repeatable option are not merged.",
    read=read.non_empty_text("Error: empty argument for --config"),
)


_GROUPS: dict[str, tuple[KnownOption, ...]] = {
    "Server": (
        CONFIG_OPTION,
        a.text("id", "Name of this server in its metadata."),
        a.integer("exit-timeout-secs", "Seconds that a shutdown waits for unanswered requests."),
        a.switch("take-over", "Replace the server on these ports when the models are loaded."),
        a.switch("one-by-one", "With --take-over: load models when the other server has ended."),
        a.count(
            "max-requests",
            "Limit on unanswered inference requests; beyond it requests get 503. 0 means 100000.",
        ),
        a.memory(
            "client-memory-byte-size",
            "Memory limit, per protocol, for incomplete requests and unread responses of clients "
            "together. 0 means 1/8 of the memory that is available at the start.",
        ),
        a.count(
            "max-model-requests",
            "--max-requests for each model without the parameter max_requests; 0 means no limit.",
        ),
        a.memory(
            "max-model-segment-bytes",
            "Bytes of shared memory for large tensors that each model without the parameter "
            "max_segment_bytes may have; 0 means no limit.",
        ),
        a.memory(
            "max-model-memory-bytes",
            "Bytes of memory that each instance of a model without the parameter "
            "max_memory_bytes may have; 0 means no limit.",
        ),
        a.switch("early-liveness", "Open the ports before the models are loaded, to be live."),
        a.text(
            "state-directory",
            "Directory for decisions about versions, which outlive the server; servers may share "
            "it. Default is $STATE_DIRECTORY or below ~/.local/state.",
        ),
        a.text(
            "runtime-directory",
            "Directory for sockets, mode 0700. Default is $RUNTIME_DIRECTORY or a new directory.",
        ),
        a.text(
            "tokens",
            "File of bearer tokens; clients of HTTP, gRPC and metrics need one of them. See "
            "'zmqtriton token --help'.",
            read=read.non_empty_text("Error: empty argument for --tokens"),
        ),
        a.integer(
            "owner-descriptor",
            "Inherited descriptor of a pipe or socket; the server stops when its other end closes.",
        ),
    ),
    "Logging": (
        a.integer(
            "log-verbose",
            "Level of verbose messages; 0 turns them off.",
            read=read.integer_or_bool,
        ),
        a.boolean("log-info", "Write messages of level info."),
        a.boolean("log-warning", "Write messages of level warning."),
        a.boolean("log-error", "Write messages of level error."),
        a.text(
            "log-format",
            'Format of the log: "default", "ISO8601" or "json".',
            read=read.one_of(("default", "ISO8601", "json"), "invalid argument for --log-format"),
        ),
        a.text("log-file", "File to log to instead of stderr."),
    ),
    "Model Repository": (
        a.texts(
            "model-repository",
            "Directory of models, or Python file with functions. May be repeated; model names must "
            "be unique across all of them.",
        ),
        a.custom("name=file", read.model_file)(
            "model-file",
            "Python file with a TritonPythonModel to serve as a model, by its own name or another. "
            "May be repeated.",
        ),
        a.texts("model-store", "The same as --model-repository.", field="model_repository"),
        a.boolean("exit-on-error", "Exit if an initial model fails to load."),
        a.switch(
            "disable-auto-complete-config",
            "Do not complete config.pbtxt; missing fields are errors.",
        ),
        a.boolean(
            "strict-readiness",
            "Be ready only if all models are; otherwise as soon as the server answers.",
        ),
        a.text(
            "model-control-mode",
            '"none": load all models at start. "poll": also follow changes in the repository. '
            '"explicit": load the models of --load-model, then as clients request.',
            read=read.one_of(
                ("none", "poll", "explicit"), "invalid argument for --model-control-mode"
            ),
        ),
        a.integer("repository-poll-secs", "Seconds between polls in mode poll."),
        a.texts(
            "load-model",
            "Model to load at start in mode explicit. May be repeated; * means all.",
        ),
        a.switch(
            "load-on-demand",
            "In mode explicit, load a model when the first request for it arrives.",
        ),
        a.number("load-on-demand-timeout", "Seconds that a request waits for a load on demand."),
        a.text(
            "model-config-name",
            "Use configs/NAME.pbtxt instead of config.pbtxt in models that have it.",
            read=read.non_empty_text("Error: empty argument for --model-config-name"),
        ),
        a.count("model-load-thread-count", "Models that load at the same time."),
        a.count("model-load-retry-count", "Retries of a failed load."),
        a.number(
            "instance-retry-secs",
            "Seconds after which an instance that died too often is tried again; 0 means never.",
        ),
        a.boolean(
            "model-namespacing",
            "Allow the same name in several repositories.",
            reason="a name in two repositories is refused",
        ),
        a.boolean(
            "enable-peer-access",
            "Let GPUs read each other's memory.",
            reason="CUDA decides which GPUs may read each other's memory",
        ),
        a.switch(
            "build-environments",
            "Build environments for models with requirements.txt or pyproject.toml.",
        ),
        a.texts(
            "model-env",
            "Restrict models to the usual variables of the server's environment (paths, locale, "
            "CUDA and libraries) and this one. May be repeated; NAME* means all that begin so, "
            "* means all. Without it models get all but the server's own credentials.",
        ),
        a.texts(
            "stub-user",
            "User that models run as in place of the server's own. May be repeated; a model "
            "chooses by its parameter stub_user, the first is for all others.",
        ),
        a.text(
            "environment-directory",
            "Cache of models' environments. Default is below $CACHE_DIRECTORY or ~/.cache.",
        ),
    ),
    "HTTP": (
        a.boolean("allow-http", "Serve HTTP."),
        a.address("http-address", "Address to listen on."),
        a.port("http-port", "Port to listen on."),
        a.boolean(
            "reuse-http-port",
            "Share the port with other servers that have this option.",
        ),
        a.text(
            "http-header-forward-pattern",
            "Regular expression; matching headers become parameters of the request.",
            read=read.regular_expression("--http-header-forward-pattern"),
        ),
        a.integer(
            "http-workers",
            "Processes that serve HTTP; 0 derives it from the number of cores.",
        ),
        a.integer(
            "http-thread-count",
            "Triton's thread count; zmqtriton has no such threads.",
            reason="no request waits for a thread; see --http-workers",
        ),
        a.long_integer(
            "http-max-input-size", "Limit on the bytes of a request's JSON or raw input."
        ),
        a.restriction_option("http-restricted-api", "api", "", HTTP_CATEGORIES),
        a.texts(
            "http-allowed-origin",
            "Let web pages of this origin load models, infer, change settings. May be repeated.",
        ),
        a.texts(
            "http-allowed-host",
            "Name that clients may use for the server, besides localhost and addresses, where it "
            "listens on loopback only or this option is given. May be repeated.",
        ),
        a.boolean("http-use-ssl", "Serve HTTPS instead of HTTP."),
        a.boolean("http-use-ssl-mutual", "The same, and require client certificates."),
        a.text("http-server-cert", "PEM file with the server's certificate."),
        a.text("http-server-key", "PEM file with the server's key."),
        a.text("http-root-cert", "PEM file with the authority that signs client certificates."),
    ),
    "GRPC": (
        a.boolean("allow-grpc", "Serve gRPC."),
        a.address("grpc-address", "Address to listen on."),
        a.port("grpc-port", "Port to listen on."),
        a.boolean(
            "reuse-grpc-port",
            "Share the port with other servers that have this option.",
        ),
        a.text(
            "grpc-header-forward-pattern",
            "Regular expression; matching metadata becomes parameters of the request.",
            read=read.regular_expression("--grpc-header-forward-pattern"),
        ),
        a.text(
            "grpc-transport",
            '"native" for the built-in HTTP/2, or "grpcio".',
            read=read.one_of(("native", "grpcio"), "invalid argument for --grpc-transport"),
        ),
        a.integer(
            "grpc-max-input-size",
            "Limit on the bytes of a message from a client.",
            read=read.integer_between(
                1, 2**31 - 1, "--grpc-max-input-size must be in the range 1 to 2147483647."
            ),
        ),
        a.boolean(
            "grpc-reflection",
            "Enable server reflection, for clients like grpcurl. Default is true if gRPC listens "
            "on loopback.",
        ),
        a.integer(
            "grpc-processes",
            "Processes that serve gRPC; 0 derives it from the number of cores.",
        ),
        a.integer(
            "grpc-infer-thread-count",
            "Triton's thread count; zmqtriton has no such threads.",
            read=read.integer_between(
                2,
                128,
                "invalid argument for --grpc_infer_thread_count. Must be in the range 2 to 128.",
            ),
            reason="no request waits for a thread; see --grpc-processes",
        ),
        a.integer(
            "grpc-infer-allocation-pool-size",
            "Request states that Triton keeps for reuse.",
            reason="no states are kept for reuse",
        ),
        a.integer(
            "grpc-max-response-pool-size",
            "Responses of one stream that Triton queues for its reader.",
            read=read.integer_between(
                1, 2**31 - 1, "Error: --grpc-max-response-pool-size must be greater than 0."
            ),
            reason="256 responses of a stream may wait for its reader, with any value",
        ),
        a.boolean("grpc-use-ssl", "Encrypt gRPC."),
        a.boolean("grpc-use-ssl-mutual", "Encrypt gRPC and require client certificates."),
        a.text("grpc-server-cert", "PEM file with the server's certificate."),
        a.text("grpc-server-key", "PEM file with the server's key."),
        a.text("grpc-root-cert", "PEM file with the authority that signs client certificates."),
        a.text(
            "grpc-infer-response-compression-level",
            '"none", "low", "medium" or "high".',
            read=read.one_of(
                ("none", "low", "medium", "high"),
                "invalid argument for --grpc_infer_response_compression_level",
            ),
        ),
        a.integer("grpc-keepalive-time", "Milliseconds without traffic before a ping."),
        a.integer("grpc-keepalive-timeout", "Milliseconds to wait for the answer to a ping."),
        a.boolean("grpc-keepalive-permit-without-calls", "Ping connections without calls too."),
        a.integer("grpc-http2-max-pings-without-data", "Pings that may be sent without data."),
        a.integer(
            "grpc-http2-min-recv-ping-interval-without-data",
            "Minimum milliseconds between a client's pings without data.",
        ),
        a.integer("grpc-http2-max-ping-strikes", "Bad pings before the connection is closed."),
        a.integer(
            "grpc-max-connection-age",
            "Maximum age of a connection in milliseconds; 0 means no limit.",
        ),
        a.integer(
            "grpc-max-connection-age-grace",
            "Further milliseconds for its open calls; 0 means no limit.",
        ),
        a.restriction_option("grpc-restricted-protocol", "protocol", "triton-grpc-protocol-"),
    ),
    "Shared memory": (
        a.boolean(
            "allow-client-shm",
            "Let clients register shared memory. Default is true if HTTP and gRPC "
            "listen on loopback only.",
        ),
        a.switch(
            "trust-client-shm",
            "Let clients register files of others, and models use all regions in place. A model's "
            "process crashes if its region shrinks.",
        ),
    ),
    "Metrics": (
        a.boolean("allow-metrics", "Serve metrics."),
        a.boolean("allow-gpu-metrics", "Report GPU metrics; needs zmqtriton[gpu]."),
        a.boolean("allow-cpu-metrics", "Report CPU and memory metrics."),
        a.address("metrics-address", "Address to listen on. Default is the address of HTTP."),
        a.port("metrics-port", "Port to listen on."),
        a.number("metrics-interval-ms", "Milliseconds between measurements."),
        a.custom("setting=value", read.metrics_setting)(
            "metrics-config",
            "counter_latencies, histogram_latencies, summary_latencies, summary_quantiles, or "
            "labels=name=value,... for all metrics.",
        ),
    ),
    "Tracing": (
        a.custom("trace mode,setting=value", trace_setting)(
            "trace-config",
            "mode, level, rate, count; triton,file; triton,log-frequency; opentelemetry,url ...",
        ),
    ),
    "Backend": (
        a.text("backend-directory", "Directory of backends written in Python."),
        a.setting_option(
            "backend-config",
            "backend name",
            "Setting of a backend, or of all backends if no name is given. May be repeated.",
            may_be_global=True,
        ),
    ),
    "Repository Agent": (
        a.text(
            "repoagent-directory",
            "Directory of Triton's agents.",
            reason="the only agent is checksum, which is built in",
        ),
    ),
    "Response Cache": (
        a.setting_option(
            "cache-config",
            "cache name",
            "Setting of the response cache, such as local,size=1048576.",
            may_be_global=False,
        ),
        a.text("cache-directory", "Directory of Triton's caches.", reason="the cache is built in"),
    ),
    "Rate Limiter": (
        a.text(
            "rate-limit",
            '"execution_count" or "off".',
            read=read.one_of(("execution_count", "off"), "invalid argument for --rate-limit"),
        ),
        a.custom("name:count:device", read.resource)(
            "rate-limit-resource",
            "Amount of a resource, on one device or in total. May be repeated.",
        ),
    ),
    "Memory/Device Management": (
        a.long_integer(
            "pinned-memory-pool-byte-size",
            "Bytes of the pinned memory pool.",
            reason="no memory is pinned",
        ),
        a.custom("gpu:bytes", read.pair(read.integer, read.long_integer, ":"))(
            "cuda-memory-pool-byte-size",
            "Bytes of a GPU's memory pool. May be repeated.",
            reason="memory of a GPU is taken as it is needed",
        ),
        a.custom("gpu:bytes", read.pair(read.integer, read.long_integer, ":"))(
            "cuda-virtual-address-size",
            "Address space of Triton's growable memory.",
            reason="no memory of a GPU grows",
        ),
        a.number(
            "min-supported-compute-capability",
            "GPUs with a lower compute capability are not used.",
        ),
        a.integer(
            "buffer-manager-thread-count",
            "Triton's thread count for copying tensors.",
            reason="tensors are copied by no threads of their own",
        ),
        a.custom("policy name,setting=value", read.host_policy)(
            "host-policy",
            "Setting numa-node or cpu-cores of a host policy. May be repeated.",
        ),
        a.custom("gpu:fraction", read.pair(read.integer, read.number, ":"))(
            "model-load-gpu-limit",
            "Fraction of a GPU's memory in use beyond which no model is loaded.",
        ),
    ),
    "DEPRECATED": (
        a.boolean(
            "strict-model-config",
            "Use --disable-auto-complete-config.",
            warning=(
                "Warning: '--strict-model-config' has been deprecated! "
                "Please use '--disable-auto-complete-config' instead."
            ),
        ),
        a.long_integer("response-cache-byte-size", "Use --cache-config=local,size=BYTES."),
        *map(a.deprecated_trace_option, DEPRECATED_TRACE_OPTIONS),
    ),
}

OPTION_GROUPS = with_declared(_GROUPS)
OPTIONS_BY_NAME: dict[str, KnownOption] = {
    option.name: option for options in OPTION_GROUPS.values() for option in options
}
