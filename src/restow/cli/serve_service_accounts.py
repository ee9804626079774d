"""The flags of `restow serve` about service accounts and their tokens."""

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
Programs are known by tokens of service accounts, which are signed by the servers and good for some
time. Servers of one cluster must believe each other: all have the key in DIR/pki, or are given the
same files. To change the key, give the old one as --service-account-key-file until its tokens are
over.
"""


def add_service_accounts(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("service accounts", ACCOUNTS).add_argument
    add(
        "--service-account-signing-key-file",
        type=Path,
        metavar="FILE",
        help="private key that signs tokens, RSA or elliptic-curve; default: one in DIR/pki",
    )
    add(
        "--service-account-key-file",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="keys whose tokens are believed too, public or private; may be repeated",
    )
    add(
        "--service-account-issuer",
        action="append",
        default=[],
        metavar="URL",
        help="who signs; may be repeated: the first signs, all are believed; default:"
        f" {ISSUER_DEFAULT}",
    )
    add(
        "--api-audiences",
        action="append",
        default=[],
        metavar="NAME,...",
        help="what this server is called in tokens; default: the issuers",
    )
    add(
        "--service-account-jwks-uri",
        default="",
        metavar="URL",
        help="where others find the keys of the issuer; default: at this server",
    )
    add(
        "--service-account-max-token-expiration",
        type=whole_number(1, int(TOKEN_SECONDS_MAX)),
        default=int(TOKEN_SECONDS_MAX),
        metavar="SECONDS",
        help="who asks for a longer time gets this; at least an hour; default: no limit",
    )
    add(
        "--service-account-extend-token-expiration",
        action="store_true",
        help="make tokens of pods good for a year if 3607 seconds are asked for, as old clients do",
    )


def service_account_options(arguments: argparse.Namespace) -> ServiceAccountOptions:
    """The options that were given. Raises ValueError for what cannot work."""
    names = [each for text in arguments.api_audiences for each in text.split(",")]
    return ServiceAccountOptions(
        issuers=tuple(arguments.service_account_issuer) or (ISSUER_DEFAULT,),
        api_audiences=tuple(names),
        key_files=tuple(arguments.service_account_key_file),
        jwks_uri=arguments.service_account_jwks_uri,
        token_seconds_max=float(arguments.service_account_max_token_expiration),
        extend_token_expiration=arguments.service_account_extend_token_expiration,
    )
