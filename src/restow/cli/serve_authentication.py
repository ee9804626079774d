"""Authentication flags of `restow serve`."""

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
Authenticators besides client certificates, --token-auth-file and service account tokens: OpenID
Connect issuers, and authenticating proxies that pass the user in headers. Files are reloaded when
they change.
"""


def add_authentication(parser: argparse.ArgumentParser) -> None:
    # Flags not given are None, so that one without effect is rejected, not ignored.
    add = parser.add_argument_group("authentication", ABOUT).add_argument
    add(
        "--anonymous-auth",
        type=_truth,
        metavar="true|false",
        help="allow requests without credentials, as system:anonymous; default: true",
    )
    add(
        "--authentication-config",
        type=Path,
        metavar="FILE",
        help="an AuthenticationConfiguration: token issuers, and the paths that allow anonymous"
        " requests; not with --oidc-*",
    )
    add("--oidc-issuer-url", metavar="URL", help="URL of the OpenID issuer; https only")
    add("--oidc-client-id", metavar="ID", help="audience that tokens must contain")
    add(
        "--oidc-username-claim",
        metavar="CLAIM",
        help=f"claim with the user name; default: {USERNAME_CLAIM_DEFAULT}",
    )
    add(
        "--oidc-username-prefix",
        metavar="TEXT",
        help="prefix of user names; '-': none; default: the URL and '#', unless the claim is email",
    )
    add(
        "--oidc-groups-claim",
        metavar="CLAIM",
        help="claim with the groups: a string or a list of strings",
    )
    add("--oidc-groups-prefix", metavar="TEXT", help="prefix of groups")
    add(
        "--oidc-signing-algs",
        type=_listed,
        metavar="ALG,...",
        help=f"accepted signing algorithms; default: {','.join(SIGNING_ALGS_DEFAULT)}",
    )
    add("--oidc-ca-file", type=Path, metavar="FILE", help="CA certificates that verify the issuer")
    add(
        "--oidc-required-claim",
        action="append",
        type=_pair,
        metavar="KEY=VALUE",
        help="claim that tokens must contain; may be repeated",
    )
    add(
        "--requestheader-client-ca-file",
        type=Path,
        metavar="FILE",
        help="CA certificates of authenticating proxies, which pass the user in headers",
    )
    add(
        "--requestheader-allowed-names",
        type=_listed,
        metavar="NAME,...",
        help="common names of authenticating proxies; default: any with a certificate of these CAs",
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
    """Build the options. Raises ValueError for options that exclude each other."""
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
        raise ValueError(f"{flags}: requires --requestheader-client-ca-file")
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
        raise argparse.ArgumentTypeError(f"{text!r} is not a list such as a,b")
    return found


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return name, value
