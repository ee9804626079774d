"""TLS flags of `restow serve`. `restow.apiserver.tls_options` has their meaning."""

import argparse

from restow.apiserver.tls_options import (
    CLIENT_AUTHS,
    MIN_VERSIONS,
    NamedCertificate,
    TlsOptions,
    parse_named,
)

ABOUT = """\
Certificates created in DIR/pki are renewed before they expire; given ones are reloaded when their
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
        help="cipher suites of TLS 1.2, by their Go names; default: the six with ECDHE and AES-GCM"
        " or ChaCha20-Poly1305",
    )
    add(
        "--tls-client-auth",
        choices=CLIENT_AUTHS,
        default=CLIENT_AUTHS[0],
        help="required: reject connections without a client certificate signed by --client-ca-file"
        f" or by the CA in DIR/pki; default: {CLIENT_AUTHS[0]}",
    )
    add(
        "--tls-sni-cert-key",
        action="append",
        default=[],
        type=_named,
        metavar="CERT,KEY[:NAME,...]",
        help="a certificate for clients that request one of the names by SNI, such as"
        " *.example.org; may be repeated; default: the names in the certificate",
    )


def tls_options(arguments: argparse.Namespace) -> TlsOptions:
    """Build the options. Raises ValueError for invalid values."""
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
