"""Service account flags of `restow serve`."""

from __future__ import annotations

import argparse
from pathlib import Path

from restow.apiserver.service_account_options import (
    ISSUER_DEFAULT,
    TOKEN_SECONDS_MAX,
    ServiceAccountOptions,
)
from restow.cli.argument_types import whole_number

ACCOUNTS = """\
Programs authenticate with service account tokens, which servers sign and which expire. Servers of
one cluster must accept each other's tokens: all use the key in DIR/pki, or the same files. To
rotate the key, pass the old one as --service-account-key-file until its tokens have expired.
"""


def add_service_accounts(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("service accounts", ACCOUNTS).add_argument
    add(
        "--service-account-signing-key-file",
        type=Path,
        metavar="FILE",
        help="private key that signs tokens, RSA or elliptic-curve; default: the key in DIR/pki",
    )
    add(
        "--service-account-key-file",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="additional keys that verify tokens, public or private; may be repeated",
    )
    add(
        "--service-account-issuer",
        action="append",
        default=[],
        metavar="URL",
        help="issuer of tokens; may be repeated: the first one signs, all are accepted; default:"
        f" {ISSUER_DEFAULT}",
    )
    add(
        "--api-audiences",
        action="append",
        default=[],
        metavar="NAME,...",
        help="audiences of this server in tokens; default: the issuers",
    )
    add(
        "--service-account-jwks-uri",
        default="",
        metavar="URL",
        help="where clients find the keys of the issuer; default: at this server",
    )
    add(
        "--service-account-max-token-expiration",
        type=whole_number(1, int(TOKEN_SECONDS_MAX)),
        default=int(TOKEN_SECONDS_MAX),
        metavar="SECONDS",
        help="maximum lifetime of tokens; at least an hour; default: no limit",
    )
    add(
        "--service-account-extend-token-expiration",
        action="store_true",
        help="issue pod tokens for a year if 3607 seconds are requested, for old clients",
    )


def service_account_options(arguments: argparse.Namespace) -> ServiceAccountOptions:
    """Build the options. Raises ValueError for options that exclude each other."""
    names = [each for text in arguments.api_audiences for each in text.split(",")]
    return ServiceAccountOptions(
        issuers=tuple(arguments.service_account_issuer) or (ISSUER_DEFAULT,),
        api_audiences=tuple(names),
        key_files=tuple(arguments.service_account_key_file),
        jwks_uri=arguments.service_account_jwks_uri,
        token_seconds_max=float(arguments.service_account_max_token_expiration),
        extend_token_expiration=arguments.service_account_extend_token_expiration,
    )
