"""Checks certificates before anything is started, so that errors are reported at once.

The processes that serve load them again, and once more whenever they change.
"""

from __future__ import annotations

from zmqtriton.options import Options


class CertificateError(Exception):
    """Raised when a certificate or its key cannot be used; the text names the option."""


def check(options: Options) -> None:
    """Check the certificate files of the options. Raises CertificateError."""
    if options.allow_http and options.http_use_ssl:
        _check("http", options)
    if options.allow_grpc and options.grpc_use_ssl:
        _check("grpc", options)


def _check(service: str, options: Options) -> None:
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
