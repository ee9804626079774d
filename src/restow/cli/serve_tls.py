"""The words of `restow serve` about TLS. What they mean is in `restow.apiserver.tls_options`."""

import argparse

from restow.apiserver.tls_options import (
    CLIENT_AUTHS,
    MIN_VERSIONS,
    NamedCertificate,
    TlsOptions,
    parse_named,
)

ABOUT = """\
Certificates made in DIR/pki are renewed before they end; those given are read again when their
files change. Neither needs a restart.
"""


def add_tls(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("TLS", ABOUT).add_argument
    add(
        "--tls-min-version",
        choices=MIN_VERSIONS,
        default=MIN_VERSIONS[0],
        help=f"default: {MIN_VERSIONS[0]}",
    )
    add(
        "--tls-cipher-suites",
        default="",
        metavar="NAME,NAME,...",
        help="of TLS 1.2, by the names that Go has for them; default: all that are good today",
    )
    add(
        "--tls-client-auth",
        choices=CLIENT_AUTHS,
        default=CLIENT_AUTHS[0],
        help="required: no connection without a client certificate that --client-ca-file or the own"
        f" authority has signed; default: {CLIENT_AUTHS[0]}",
    )
    add(
        "--tls-sni-cert-key",
        action="append",
        default=[],
        type=_named,
        metavar="CERT,KEY[:NAME,...]",
        help="a certificate for clients that ask for one of the names, such as *.example.org;"
        " default: the names in it; may be repeated",
    )


def tls_options(arguments: argparse.Namespace) -> TlsOptions:
    """What was chosen. Raises ValueError for what cannot work."""
    suites = (name.strip() for name in arguments.tls_cipher_suites.split(","))
    return TlsOptions(
        min_version=arguments.tls_min_version,
        cipher_suites=tuple(filter(None, suites)),
        client_auth=arguments.tls_client_auth,
        named=tuple(arguments.tls_sni_cert_key),
    )


def _named(text: str) -> NamedCertificate:
    try:
        return parse_named(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
