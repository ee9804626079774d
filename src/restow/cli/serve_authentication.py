"""Flags of `restow serve` that say who is let in."""

import argparse
from pathlib import Path
from typing import Any

from restow.apiserver.authentication_options import (
    SIGNING_ALGS_DEFAULT,
    USERNAME_CLAIM_DEFAULT,
    AuthenticationOptions,
    OidcOptions,
    RequestHeaderOptions,
)

ABOUT = """\
Who may come in besides those with a client certificate, a token of --token-auth-file or of a
service account: people whom an OpenID Connect issuer vouches for, and whoever a proxy in front has
let in. Files are read again when they change.
"""


def add_authentication(parser: argparse.ArgumentParser) -> None:
    # What was not given is None: a flag without effect is refused, not ignored.
    add = parser.add_argument_group("authentication", ABOUT).add_argument
    add(
        "--anonymous-auth",
        type=_truth,
        metavar="true|false",
        help="let in requests without a credential as system:anonymous; default: true",
    )
    add(
        "--authentication-config",
        type=Path,
        metavar="FILE",
        help="an AuthenticationConfiguration: issuers of tokens, and where anonymous requests are"
        " let in; not with --oidc-*",
    )
    add("--oidc-issuer-url", metavar="URL", help="whose tokens are trusted: https only")
    add("--oidc-client-id", metavar="ID", help="the audience that tokens must be for")
    add(
        "--oidc-username-claim",
        metavar="CLAIM",
        help=f"what a user is called by; default: {USERNAME_CLAIM_DEFAULT}",
    )
    add(
        "--oidc-username-prefix",
        metavar="TEXT",
        help="before each name; '-': nothing; default: the URL and '#', unless the claim is email",
    )
    add("--oidc-groups-claim", metavar="CLAIM", help="a text or a list of texts")
    add("--oidc-groups-prefix", metavar="TEXT", help="before each group")
    add(
        "--oidc-signing-algs",
        type=_listed,
        metavar="ALG,...",
        help=f"how tokens may be signed; default: {','.join(SIGNING_ALGS_DEFAULT)}",
    )
    add("--oidc-ca-file", type=Path, metavar="FILE", help="authorities of the issuer's certificate")
    add(
        "--oidc-required-claim",
        action="append",
        type=_pair,
        metavar="KEY=VALUE",
        help="what tokens must say; may be repeated",
    )
    add(
        "--requestheader-client-ca-file",
        type=Path,
        metavar="FILE",
        help="authorities of proxies that say in headers who has asked them",
    )
    add(
        "--requestheader-allowed-names",
        type=_listed,
        metavar="NAME,...",
        help="common names of such proxies; default: all that have a certificate of these"
        " authorities",
    )
    for name, default in (
        ("username-headers", "X-Remote-User"),
        ("uid-headers", "X-Remote-Uid"),
        ("group-headers", "X-Remote-Group"),
        ("extra-headers-prefix", "X-Remote-Extra-"),
    ):
        add(
            f"--requestheader-{name}",
            type=_listed,
            metavar="NAME,...",
            help=f"default: {default}",
        )


def authentication_options(arguments: argparse.Namespace) -> AuthenticationOptions:
    """The options that were given. Raises ValueError for what cannot work."""
    return AuthenticationOptions(
        anonymous_auth=arguments.anonymous_auth,
        authentication_config=arguments.authentication_config,
        oidc=_oidc(arguments),
        request_header=_request_header(arguments),
    )


def _oidc(arguments: argparse.Namespace) -> OidcOptions | None:
    given = _given(arguments, "oidc_")
    if not given:
        return None
    for name in ("issuer_url", "client_id"):
        given.setdefault(name, "")
    if "required_claim" in given:
        given["required_claims"] = tuple(given.pop("required_claim"))
    return OidcOptions(**given)


def _request_header(arguments: argparse.Namespace) -> RequestHeaderOptions | None:
    given = _given(arguments, "requestheader_")
    if not given:
        return None
    if "client_ca_file" not in given:
        flags = ", ".join(f"--requestheader-{name.replace('_', '-')}" for name in given)
        raise ValueError(f"{flags}: only with --requestheader-client-ca-file")
    if "extra_headers_prefix" in given:
        given["extra_prefixes"] = given.pop("extra_headers_prefix")
    return RequestHeaderOptions(**given)


def _given(arguments: argparse.Namespace, prefix: str) -> dict[str, Any]:
    return {
        name.removeprefix(prefix): value
        for name, value in vars(arguments).items()
        if name.startswith(prefix) and value is not None
    }


def _truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text == "true"


def _listed(text: str) -> tuple[str, ...]:
    found = tuple(each.strip() for each in text.split(","))
    if not all(found):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of words, such as a,b")
    return found


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is no KEY=VALUE")
    return name, value
