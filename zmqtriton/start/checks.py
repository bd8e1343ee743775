"""Why a server with these options could not start on this machine: `zmqtriton check -- OPTIONS`.

The same checks stop its start. All of them run, and change nothing: a new log file is not made.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator

from zmqtriton.file_names import write_obstacle
from zmqtriton.host import capacity, fitness
from zmqtriton.options import Options, option_of
from zmqtriton.start import listeners, predecessors, secrets
from zmqtriton.start.ports import is_shared_with, is_used

#: Minimum bytes of memory of a process that serves clients, and maximum number of them per core.
_BYTES_OF_WORKER = 64 << 20
_WORKERS_PER_CORE = 16
#: Number of processes that is never too high.
_FEW = 4
#: The name of a server's process.
_PROGRAM = "zmqtriton"


def check_numbers(options: Options) -> None:
    """Check numbers of the options. Raises OSError."""
    _check_timeout(options)
    _check_processes(options)


def _check_timeout(options: Options) -> None:
    if options.exit_timeout_secs < 0:
        raise OSError(
            f"--exit-timeout-secs={options.exit_timeout_secs}: the time must be 0 or more"
        )


def _check_processes(options: Options) -> None:
    of_cores = _WORKERS_PER_CORE * len(os.sched_getaffinity(0))
    limit = max(_FEW, min(of_cores, capacity.available_bytes() // 2 // _BYTES_OF_WORKER))
    for name in ("http_workers", "grpc_processes"):
        number = getattr(options, name)
        if number > limit:
            raise OSError(
                f"{option_of(name)}={number}: the cores and the memory of this machine "
                f"allow at most {limit}"
            )


def find_problems(options: Options) -> Iterator[str]:
    """Yield each problem that would stop the start, except problems of models."""
    checks: tuple[Callable[[Options], object], ...] = (
        fitness.check,
        _check_timeout,
        _check_processes,
        secrets.resolve_key_files,
        secrets.check_tokens,
        check_certificates,
        _check_log_file,
        _check_ports,
    )
    for check in checks:
        try:
            check(options)
        except (listeners.PortError, secrets.SecretError, CertificateError, OSError) as error:
            yield str(error)


def _check_log_file(options: Options) -> None:
    path = options.log_file
    if path and (obstacle := write_obstacle(path)):
        raise OSError(f"cannot open the log file '{path}', choose another --log-file: {obstacle}")


def _check_ports(options: Options) -> None:
    """Bind the ports for a moment, except the ports of our own server, which the next one gets.

    A server says itself which ports it serves. /proc may hide its processes, and its sockets may be
    systemd's, whose user is root.
    """
    used = {role: port for role, port in listeners.all_ports(options).items() if is_used(port)}
    served = predecessors.find_served_ports() if used else set()
    ours = {
        role: listeners.BoundSocket(role, socket.socket())
        for role, port in used.items()
        if port in served or is_shared_with(_PROGRAM, port)
    }
    listeners.close_all(listeners.bind_all(options, ours))


class CertificateError(Exception):
    """Raised when a certificate or its key cannot be used; the text names the option."""


def check_certificates(options: Options) -> None:
    """Check the certificate files of the options. Raises CertificateError.

    The processes that serve load them again, and once more whenever they change.
    """
    for service in ("http", "grpc"):
        if getattr(options, f"allow_{service}") and getattr(options, f"{service}_use_ssl"):
            _check_service(service, options)


def _check_service(service: str, options: Options) -> None:
    import ssl  # takes memory and time, and few need it

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    cert, key = (getattr(options, f"{service}_server_{what}") for what in ("cert", "key"))
    try:
        # Without a password, OpenSSL would ask for an encrypted key's password on the terminal.
        context.load_cert_chain(cert, key, password="")
    except (OSError, ValueError) as error:
        where = f"--{service}-server-cert={cert}, --{service}-server-key={key}"
        raise CertificateError(f"{where}: {_reason(error)}") from None
    root = getattr(options, f"{service}_root_cert")
    if getattr(options, f"{service}_use_ssl_mutual"):
        try:
            context.load_verify_locations(root)
        except (OSError, ValueError) as error:
            raise CertificateError(f"--{service}-root-cert={root}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
