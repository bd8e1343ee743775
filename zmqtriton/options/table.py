"""Every option of the command line, one row each, grouped as `--help` shows them.

The defaults are in Options. A row says how the text is read and what becomes of it: when an option
starts to be honoured, only its row changes.
"""

from __future__ import annotations

from zmqtriton.options import kinds as a
from zmqtriton.options import values as read
from zmqtriton.options.kinds import Arity, Option, OptionSupport
from zmqtriton.options.trace import DEPRECATED_TRACE_OPTIONS, trace_setting

_PENDING, _INERT = OptionSupport.PLANNED, OptionSupport.IGNORED
_NO_SAGEMAKER = "SageMaker's endpoints are not served"
_NO_VERTEX = "Vertex AI's endpoints are not served"

OPTION_GROUPS: dict[str, tuple[Option, ...]] = {
    "Server": (
        a.text("id", "Name of this server, as clients see it."),
        a.integer(
            "exit-timeout-secs",
            "Seconds that requests under way are given when the server stops.",
        ),
        a.count(
            "max-requests",
            "Inferences that may be unanswered at once; the next one gets 503. 0 is 100000.",
        ),
        a.count(
            "max-model-requests",
            "The same for each model that has no parameter max_requests; 0 is any number.",
        ),
        a.switch(
            "early-liveness",
            "Open the ports before models are loaded: live at once, ready when they are.",
        ),
        a.text(
            "runtime-directory",
            "Directory for sockets, mode 0700. By default $RUNTIME_DIRECTORY or a new one.",
        ),
    ),
    "Logging": (
        a.integer(
            "log-verbose",
            "Level of verbose messages; 0 is none.",
            read=read.integer_or_bool,
        ),
        a.boolean("log-info", "Write messages of level info."),
        a.boolean("log-warning", "Write messages of level warning."),
        a.boolean("log-error", "Write messages of level error."),
        a.text(
            "log-format",
            'Form of each line: "default", "ISO8601" or "json".',
            read=read.one_of(("default", "ISO8601", "json"), "invalid argument for --log-format"),
        ),
        a.text("log-file", "File to write to instead of stderr."),
    ),
    "Model Repository": (
        a.texts(
            "model-repository",
            "Directory of models. May be repeated; a model's name must be unique in all of them.",
        ),
        a.texts("model-store", "The same as --model-repository.", field="model_repository"),
        a.boolean("exit-on-error", "Exit when a model to be loaded at start fails to load."),
        a.switch(
            "disable-auto-complete-config",
            "Take config.pbtxt as it is; what it lacks is an error.",
        ),
        a.boolean(
            "strict-readiness",
            "Be ready only while all models are; else as soon as the server answers.",
        ),
        a.text(
            "model-control-mode",
            '"none": load all models at start. "poll": follow changes of the repository. '
            '"explicit": load what --load-model names, then what clients ask for.',
            read=read.one_of(
                ("none", "poll", "explicit"), "invalid argument for --model-control-mode"
            ),
        ),
        a.integer("repository-poll-secs", "Seconds from poll to poll in mode poll."),
        a.texts(
            "load-model",
            "Model to load at start in mode explicit. May be repeated; * alone is all of them.",
        ),
        a.switch(
            "load-on-demand",
            "In mode explicit, load a model of the repository when a request for it comes.",
        ),
        a.number("load-on-demand-timeout", "Seconds that a request waits for such a load."),
        a.number("unload-idle-after", "Seconds that such a model may be idle; 0 is for ever."),
        a.long_integer(
            "model-memory-budget",
            "Bytes of processes of models beyond which such models make room; 0 is any number.",
        ),
        a.text(
            "model-config-name",
            "Read configs/NAME.pbtxt of each model that has it, in place of config.pbtxt.",
            read=read.non_empty_text("Error: empty argument for --model-config-name"),
        ),
        a.count("model-load-thread-count", "Models that may load at the same time."),
        a.count("model-load-retry-count", "Times that a failed load is tried again."),
        a.boolean(
            "model-namespacing",
            "Allow the same name in several repositories.",
            _PENDING,
            why="a name that two repositories have is refused",
        ),
        a.boolean(
            "enable-peer-access",
            "Let GPUs read each other's memory.",
            _INERT,
            why="CUDA decides which GPUs may read each other's memory",
        ),
        a.switch(
            "build-environments",
            "Build an environment for models with requirements.txt or pyproject.toml.",
        ),
        a.text(
            "environment-directory",
            "Where environments of models are kept. By default below $CACHE_DIRECTORY or ~/.cache.",
        ),
    ),
    "HTTP": (
        a.boolean("allow-http", "Serve HTTP."),
        a.text("http-address", "Address to listen on."),
        a.port("http-port", "Port to listen on."),
        a.boolean("reuse-http-port", "Share the port with other servers that say so too."),
        a.text(
            "http-header-forward-pattern",
            "Headers that match this expression become parameters of the request.",
            read=read.regular_expression("--http-header-forward-pattern"),
        ),
        a.integer("http-workers", "Processes that serve HTTP; 0 is by the number of cores."),
        a.integer(
            "http-thread-count",
            "Triton's threads; here no request waits for one.",
            _INERT,
            why="no request waits for a thread; see --http-workers",
        ),
        a.long_integer(
            "http-max-input-size", "Bytes that one request's JSON or raw input may have."
        ),
        a.boolean(
            "allow-web-page", "Serve a page for people at /, /docs, and the API's description."
        ),
        a.restriction_option("http-restricted-api", "api", ""),
        a.texts(
            "http-allowed-origin",
            "Web pages of this origin may load models and change settings too. May be repeated.",
        ),
        a.boolean("http-use-ssl", "Serve HTTPS in place of HTTP."),
        a.boolean("http-use-ssl-mutual", "The same, and ask for clients' certificates."),
        a.text("http-server-cert", "File of the server's certificate."),
        a.text("http-server-key", "File of the server's key."),
        a.text("http-root-cert", "File of the certificate that signs clients'."),
    ),
    "GRPC": (
        a.boolean("allow-grpc", "Serve gRPC."),
        a.text("grpc-address", "Address to listen on."),
        a.port("grpc-port", "Port to listen on."),
        a.boolean("reuse-grpc-port", "Share the port with other servers that say so too."),
        a.text(
            "grpc-header-forward-pattern",
            "Metadata that matches this expression becomes parameters of the request.",
            read=read.regular_expression("--grpc-header-forward-pattern"),
        ),
        a.text(
            "grpc-transport",
            '"native", HTTP/2 by this server itself, or "grpcio", by that library.',
            read=read.one_of(("native", "grpcio"), "invalid argument for --grpc-transport"),
        ),
        a.integer(
            "grpc-max-input-size",
            "Bytes that one message of a client may have.",
            read=read.integer_between(
                1, 2**31 - 1, "--grpc-max-input-size must be in the range 1 to 2147483647."
            ),
        ),
        a.boolean("grpc-reflection", "Tell clients like grpcurl of the services."),
        a.integer("grpc-processes", "Processes that serve gRPC; 0 is by the number of cores."),
        a.integer(
            "grpc-infer-thread-count",
            "Triton's threads; here no request waits for one.",
            _INERT,
            read=read.integer_between(
                2,
                128,
                "invalid argument for --grpc_infer_thread_count. Must be in the range 2 to 128.",
            ),
            why="no request waits for a thread; see --grpc-processes",
        ),
        a.integer(
            "grpc-infer-allocation-pool-size",
            "States that Triton keeps for reuse.",
            _INERT,
            why="no states are kept for reuse",
        ),
        a.integer(
            "grpc-max-response-pool-size",
            "Responses of one stream that may wait for its reader.",
            _INERT,
            read=read.integer_between(
                1, 2**31 - 1, "Error: --grpc-max-response-pool-size must be greater than 0."
            ),
            why="256 responses of a stream may wait for its reader, whatever is said",
        ),
        a.boolean("grpc-use-ssl", "Encrypt gRPC."),
        a.boolean("grpc-use-ssl-mutual", "Encrypt gRPC and ask for clients' certificates."),
        a.text("grpc-server-cert", "File of the server's certificate."),
        a.text("grpc-server-key", "File of the server's key."),
        a.text("grpc-root-cert", "File of the certificate that signs clients'."),
        a.text(
            "grpc-infer-response-compression-level",
            '"none", "low", "medium" or "high".',
            read=read.one_of(
                ("none", "low", "medium", "high"),
                "invalid argument for --grpc_infer_response_compression_level",
            ),
        ),
        a.integer("grpc-keepalive-time", "Milliseconds without traffic before a ping."),
        a.integer("grpc-keepalive-timeout", "Milliseconds that a ping's answer may take."),
        a.boolean("grpc-keepalive-permit-without-calls", "Ping without a call under way."),
        a.integer("grpc-http2-max-pings-without-data", "Pings that may be sent without data."),
        a.integer(
            "grpc-http2-min-recv-ping-interval-without-data",
            "Milliseconds that a client without data must leave between pings.",
        ),
        a.integer("grpc-http2-max-ping-strikes", "Bad pings before the connection is closed."),
        a.integer("grpc-max-connection-age", "Milliseconds that a connection may live; 0 is any."),
        a.integer(
            "grpc-max-connection-age-grace",
            "Milliseconds more for calls under way on it; 0 is any.",
        ),
        a.restriction_option("grpc-restricted-protocol", "protocol", "triton-grpc-protocol-"),
    ),
    "Shared memory": (
        a.boolean(
            "allow-client-shm",
            "Let clients register shared memory. By default if HTTP and gRPC are loopback only.",
        ),
        a.switch(
            "trust-client-shm",
            "Map clients' regions without a copy; one that shrinks kills what reads it.",
        ),
    ),
    "Sagemaker": (
        a.boolean("allow-sagemaker", "Serve SageMaker's endpoints.", _PENDING, why=_NO_SAGEMAKER),
        a.port("sagemaker-port", "Port for them.", _PENDING, why=_NO_SAGEMAKER),
        a.custom(
            "integer-integer", read.pair(read.integer, read.integer, "-"), shape=Arity.LAST_WINS
        )(
            "sagemaker-safe-port-range",
            "Range that this port may come from.",
            _PENDING,
            why=_NO_SAGEMAKER,
        ),
        a.integer(
            "sagemaker-thread-count",
            "Triton's threads for them.",
            _INERT,
            why=_NO_SAGEMAKER,
        ),
    ),
    "Vertex": (
        a.boolean("allow-vertex-ai", "Serve Vertex AI's endpoints.", _PENDING, why=_NO_VERTEX),
        a.port("vertex-ai-port", "Port for them.", _PENDING, why=_NO_VERTEX),
        a.integer(
            "vertex-ai-thread-count",
            "Triton's threads for them.",
            _INERT,
            why=_NO_VERTEX,
        ),
        a.text(
            "vertex-ai-default-model",
            "Model for requests that name none.",
            _PENDING,
            why=_NO_VERTEX,
        ),
    ),
    "Metrics": (
        a.boolean("allow-metrics", "Serve metrics."),
        a.boolean("allow-gpu-metrics", "Measure GPUs, where zmqtriton[gpu] is installed."),
        a.boolean("allow-cpu-metrics", "Measure processor and memory."),
        a.text("metrics-address", "Address to listen on. By default that of HTTP."),
        a.port("metrics-port", "Port to listen on."),
        a.number("metrics-interval-ms", "Milliseconds between measurements."),
        a.custom("setting=value", read.metrics_setting)(
            "metrics-config",
            "counter_latencies, histogram_latencies, summary_latencies or summary_quantiles.",
        ),
    ),
    "Tracing": (
        a.custom("trace mode,setting=value", trace_setting)(
            "trace-config",
            "mode, level, rate, count; triton,file; triton,log-frequency; opentelemetry,url ...",
        ),
    ),
    "Backend": (
        a.text("backend-directory", "Directory of backends, for those written in Python."),
        a.setting_option(
            "backend-config",
            "backend name",
            "Setting of a backend, or of all without a name. May be repeated.",
            OptionSupport.SUPPORTED,
            may_be_global=True,
        ),
    ),
    "Repository Agent": (
        a.text(
            "repoagent-directory",
            "Directory of Triton's agents.",
            _INERT,
            why="of the agents there is checksum, which is built in",
        ),
    ),
    "Response Cache": (
        a.setting_option(
            "cache-config",
            "cache name",
            "Setting of the response cache, such as local,size=1048576.",
            may_be_global=False,
        ),
        a.text(
            "cache-directory", "Directory of Triton's caches.", _INERT, why="the cache is built in"
        ),
    ),
    "Rate Limiter": (
        a.text(
            "rate-limit",
            '"execution_count" or "off".',
            read=read.one_of(("execution_count", "off"), "invalid argument for --rate-limit"),
        ),
        a.custom("name:count:device", read.resource)(
            "rate-limit-resource",
            "How many of a resource there are, on one device or without one. May be repeated.",
        ),
    ),
    "Memory/Device Management": (
        a.long_integer(
            "pinned-memory-pool-byte-size",
            "Bytes of pinned memory.",
            _INERT,
            why="no memory is pinned",
        ),
        a.custom("gpu:bytes", read.pair(read.integer, read.long_integer, ":"))(
            "cuda-memory-pool-byte-size",
            "Bytes of memory on a GPU. May be repeated.",
            _INERT,
            why="memory of a GPU is taken as it is needed",
        ),
        a.custom("gpu:bytes", read.pair(read.integer, read.long_integer, ":"))(
            "cuda-virtual-address-size",
            "Address space of Triton's growable memory.",
            _INERT,
            why="no memory of a GPU grows",
        ),
        a.number("min-supported-compute-capability", "GPUs below it are not used."),
        a.integer(
            "buffer-manager-thread-count",
            "Triton's threads that copy tensors.",
            _INERT,
            why="tensors are copied by no threads of their own",
        ),
        a.custom("policy name,setting=value", read.host_policy)(
            "host-policy",
            "numa-node or cpu-cores of a policy. May be repeated.",
        ),
        a.custom("gpu:fraction", read.pair(read.integer, read.number, ":"))(
            "model-load-gpu-limit",
            "Share of a GPU's memory in use above which nothing more is loaded.",
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

OPTIONS_BY_NAME: dict[str, Option] = {
    option.name: option for options in OPTION_GROUPS.values() for option in options
}
