"""Authenticators of a server: files that are rejected at the start, and files that change later."""

from __future__ import annotations

from pathlib import Path

import pytest

from restow.aio import Runtime, SimulatedClock
from restow.apiserver.authentication import Authenticators
from restow.apiserver.authentication_options import (
    AuthenticationOptions,
    OidcOptions,
    RequestHeaderOptions,
)
from restow.authentication import NOWHERE
from restow.request.context import User
from tests.support.certificates import CertificateFiles, make_certificate

HEAD = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n"
ADMIN = User("admin", ("system:masters",))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return make_certificate(tmp_path_factory.mktemp("ca"), name="people")


async def load(options: AuthenticationOptions, **more: object) -> Authenticators:
    runtime = Runtime.simulated(1, clock=SimulatedClock())
    return await Authenticators.load(options, runtime, tokens={"root": ADMIN}, **more)  # type: ignore[arg-type]


async def test_the_token_file_is_read_again(tmp_path: Path) -> None:
    """Tokens are added and removed; the administrator's cannot be taken, and an invalid file
    changes nothing."""
    path = tmp_path / "tokens.csv"
    path.touch(mode=0o600)
    path.write_text("a,ann,1\nroot,eve,2\n")
    authenticators = await load(AuthenticationOptions(), token_auth_file=path)
    chain = authenticators.chain()
    assert chain.user_of("a") == User("ann", ("system:authenticated",), "1")
    assert (found := chain.user_of("root")) is not None
    assert found.name == "admin"
    path.write_text("b,bob,1\n")
    authenticators._take_token_file()
    assert chain.user_of("a") is None
    assert chain.user_of("b") is not None
    path.write_text("b\n")
    with pytest.raises(ValueError, match="line 1"):
        authenticators._take_token_file()
    assert chain.user_of("b") is not None
    await authenticators.close()


async def test_anonymous_access_is_said_in_one_place(tmp_path: Path) -> None:
    """By the flag or by the file, not both; it does not change while a server runs."""
    path = tmp_path / "config.yaml"
    path.write_text(f"{HEAD}jwt: []\nanonymous: {{enabled: false}}\n")
    authenticators = await load(AuthenticationOptions(authentication_config=path))
    assert authenticators.anonymous == NOWHERE
    path.write_text(f"{HEAD}jwt: []\nanonymous: {{enabled: true}}\n")
    with pytest.raises(ValueError, match="only read at the start"):
        authenticators._take_config()
    await authenticators.close()
    with pytest.raises(ValueError, match="--anonymous-auth cannot be set"):
        await load(AuthenticationOptions(authentication_config=path, anonymous_auth=True))
    off = await load(AuthenticationOptions(anonymous_auth=False))
    assert off.anonymous == NOWHERE
    await off.close()


async def test_a_bad_configuration_names_its_file(tmp_path: Path) -> None:
    """It is rejected at the start."""
    path = tmp_path / "config.yaml"
    path.write_text(f"{HEAD}jwt: [{{}}]\n")
    with pytest.raises(ValueError, match=r"config.yaml: jwt\[0\].issuer.url: Required"):
        await load(AuthenticationOptions(authentication_config=path))
    wrong = OidcOptions(issuer_url="http://a", client_id="b")
    with pytest.raises(ValueError, match=r"--oidc-\*: .*https"):
        await load(AuthenticationOptions(oidc=wrong))


async def test_proxies_and_users_are_not_signed_by_the_same(files: CertificateFiles) -> None:
    """Otherwise each user could impersonate others; unless the proxies' names are restricted."""
    people = files.ca_file.read_bytes()
    both = RequestHeaderOptions(client_ca_file=files.ca_file)
    with pytest.raises(ValueError, match="overlapping certificates"):
        await load(AuthenticationOptions(request_header=both), client_ca_pem=people)
    named = RequestHeaderOptions(client_ca_file=files.ca_file, allowed_names=("front",))
    authenticators = await load(AuthenticationOptions(request_header=named), client_ca_pem=people)
    assert authenticators.client_ca_files == (files.ca_file,)
    await authenticators.close()


async def test_an_authority_of_proxies_must_be_one(tmp_path: Path) -> None:
    """A file without certificates is rejected, and named."""
    path = tmp_path / "none.pem"
    path.write_text("none")
    wanted = RequestHeaderOptions(client_ca_file=path)
    with pytest.raises(
        ValueError, match=r"--requestheader-client-ca-file .*none.pem: contains no certificate"
    ):
        await load(AuthenticationOptions(request_header=wanted))


@pytest.mark.parametrize(
    ("claim", "prefix", "wanted"),
    [
        ("sub", "", "https://a#"),
        ("sub", "x:", "x:"),
        ("sub", "-", ""),
        ("email", "", ""),
        ("email", "x:", "x:"),
    ],
)
def test_names_of_an_issuer_have_a_prefix(claim: str, prefix: str, wanted: str) -> None:
    """As with kube-apiserver's flags, so that users of different issuers have different names."""
    options = OidcOptions(
        issuer_url="https://a", client_id="b", username_claim=claim, username_prefix=prefix
    )
    assert options.prefix_of_names == wanted


def test_flags_that_cannot_work_together_are_refused(tmp_path: Path) -> None:
    """Each error names the flags."""
    with pytest.raises(ValueError, match="--oidc-issuer-url and --oidc-client-id"):
        OidcOptions(issuer_url="https://a", client_id="")
    for algorithms in (("HS256",), ("none",), ()):
        with pytest.raises(ValueError, match="--oidc-signing-algs"):
            OidcOptions(issuer_url="https://a", client_id="b", signing_algs=algorithms)
    with pytest.raises(ValueError, match="--oidc-required-claim"):
        OidcOptions(issuer_url="https://a", client_id="b", required_claims=(("a", "1"), ("a", "2")))
    issuer = OidcOptions(issuer_url="https://a", client_id="b")
    with pytest.raises(ValueError, match="--authentication-config"):
        AuthenticationOptions(oidc=issuer, authentication_config=tmp_path)
