"""A CertificateSigningRequest records its real requester, and approval and signing need
permission."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.conformance.api.rights import client_of, give, rule
from tests.conformance.api.servers import RunningServer
from tests.support.api_client import MERGE_PATCH, ApiClient

GROUP = "certificates.k8s.io"
PLURAL = "certificatesigningrequests"
REQUESTS = f"/apis/{GROUP}/v1/{PLURAL}"
SIGNER = "example.com/devices"
CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"
WRITER = rule("*", f"{PLURAL} {PLURAL}/approval {PLURAL}/status", GROUP)
APPROVED = {"type": "Approved", "status": "True", "reason": "test"}
KEY = ec.generate_private_key(ec.SECP256R1())


def request_pem(*organizations: str) -> bytes:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
    name = x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, "somebody")])
    made = x509.CertificateSigningRequestBuilder().subject_name(name).sign(KEY, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def wanted(
    name: str = "one", signer: str = SIGNER, pem: bytes | None = None, **spec: Any
) -> dict[str, Any]:
    request = encoded(request_pem("devices") if pem is None else pem)
    return {
        "metadata": {"name": name},
        "spec": {"request": request, "signerName": signer, "usages": ["client auth"], **spec},
    }


def certificate_text() -> str:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "somebody")])
    begin = datetime(2024, 1, 1, tzinfo=UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=1))
        .sign(KEY, hashes.SHA256())
    )
    return encoded(made.public_bytes(serialization.Encoding.PEM))


@pytest_asyncio.fixture
async def jane(server: RunningServer) -> AsyncIterator[ApiClient]:
    """A user who may write CertificateSigningRequests, without permission for any signer."""
    await give(server, "requests", WRITER)
    client = client_of(server)
    yield client
    await client.close()


async def test_the_server_sets_the_requester(server: RunningServer, jane: ApiClient) -> None:
    """Whatever a body contains, the request carries the user who created it, permanently."""
    said: dict[str, Any] = {
        "username": "root",
        "groups": ["system:masters"],
        "uid": "0",
        "extra": {"a": ["b"]},
    }
    for name, query in (("dry", "?dryRun=All"), ("one", "")):
        made = (await jane.post(REQUESTS + query, wanted(name, **said))).json
        assert made["spec"]["username"] == "jane"
        assert made["spec"]["groups"] == ["developers", "system:authenticated"]
        assert made["spec"]["uid"] == "u-1"
        assert "extra" not in made["spec"]
    for client in (jane, server.client):
        item = (await client.get(f"{REQUESTS}/one")).json
        before = dict(item["spec"])
        item["spec"] |= {"username": "root2", "signerName": CLIENT_SIGNER}
        for part in ("", "/status"):
            assert (await client.put(f"{REQUESTS}/one{part}", item)).json["spec"] == before
            change = {"spec": {"groups": ["system:masters"]}}
            patched = await client.patch(f"{REQUESTS}/one{part}", change, content_type=MERGE_PATCH)
            assert patched.json["spec"] == before


@pytest.mark.parametrize("query", ["", "?dryRun=All"])
async def test_no_requests_for_system_masters(server: RunningServer, query: str) -> None:
    """The kube-apiserver-client signer refuses requests with the group system:masters, from any
    user."""
    pem = request_pem("devices", "system:masters")
    refused = await server.client.post(REQUESTS + query, wanted("evil", CLIENT_SIGNER, pem))
    assert (refused.status, refused.reason) == (403, "Forbidden")
    assert refused.message == (
        'certificatesigningrequests.certificates.k8s.io "evil" is forbidden: use of'
        " kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"
    )
    # Other signers may interpret the group as they like.
    assert (await server.client.post(REQUESTS + query, wanted("odd", SIGNER, pem))).status == 201


async def test_invalid_requests(server: RunningServer) -> None:
    """A body that is not a signed certificate request, or is ambiguous, is refused."""
    good = request_pem("devices")
    body = bytearray(base64.b64decode(b"".join(good.splitlines()[1:-1])))
    body[-1] ^= 1
    forged = b"-----BEGIN CERTIFICATE REQUEST-----\n%b\n-----END CERTIFICATE REQUEST-----\n"
    cases = {
        b"nothing": "PEM block type must be CERTIFICATE REQUEST",
        good.replace(b" REQUEST", b""): "PEM block type must be CERTIFICATE REQUEST",
        good + good: "must hold one PEM block",
        forged % b"AAAA": "x509: malformed certificate request",
        forged % base64.b64encode(body): "x509: ECDSA verification failure",
    }
    for pem, why in cases.items():
        reply = await server.client.post(REQUESTS, wanted(pem=pem))
        assert (reply.status, reply.reason) == (422, "Invalid"), (why, reply.body)
        assert reply.message.endswith(why)
        assert reply.json["details"]["causes"][0]["field"] == "spec.request"
    assert (await server.client.post(REQUESTS, wanted(pem=b"a note\n" + good))).status == 201


@pytest.mark.parametrize("right", [SIGNER, "example.com/*"])
async def test_approval_needs_permission_for_the_signer(
    server: RunningServer, jane: ApiClient, right: str
) -> None:
    """An approval needs the verb `approve` on the signer, or on its whole domain."""
    item = (await jane.post(REQUESTS, wanted())).json
    item["status"] = {"conditions": [APPROVED], "certificate": certificate_text()}
    why = (
        'certificatesigningrequests.certificates.k8s.io "one" is forbidden: user not permitted to'
        ' approve requests with signerName "example.com/devices"'
    )
    for query in ("", "?dryRun=All"):
        path = f"{REQUESTS}/one/approval{query}"
        refused = await jane.put(path, item)
        assert (refused.status, refused.message) == (403, why)
        change = {"status": {"conditions": [APPROVED]}}
        refused = await jane.patch(path, change, content_type=MERGE_PATCH)
        assert (refused.status, refused.message) == (403, why)
    await give(server, "other", rule("approve", "signers", GROUP, "example.org/* other.com/*"))
    assert (await jane.put(f"{REQUESTS}/one/approval", item)).status == 403
    await give(server, "approver", rule("approve", "signers", GROUP, right))
    approved = await jane.put(f"{REQUESTS}/one/approval", item)
    assert approved.status == 200, approved.body
    # The approval subresource does not sign, and an approval cannot be withdrawn.
    assert approved.json["status"] == {"conditions": [APPROVED]}
    item = approved.json
    item["status"]["conditions"] = []
    taken_back = await jane.put(f"{REQUESTS}/one/approval", item)
    assert taken_back.status == 422
    assert 'updates may not remove a condition of type "Approved"' in taken_back.message
    item["status"]["conditions"] = [APPROVED, {**APPROVED, "type": "Denied"}]
    assert (await jane.put(f"{REQUESTS}/one/approval", item)).status == 422


async def test_signing_needs_permission_for_the_signer(
    server: RunningServer, jane: ApiClient
) -> None:
    """A certificate needs the verb `sign`, must be valid, and cannot be changed or approve the
    request."""
    await jane.post(REQUESTS, wanted())
    path = f"{REQUESTS}/one/status"

    async def write(client: ApiClient, **fields: Any) -> tuple[int, str]:
        reply = await client.patch(path, {"status": fields}, content_type=MERGE_PATCH)
        return reply.status, "" if reply.status == 200 else reply.message

    told = (
        'certificatesigningrequests.certificates.k8s.io "one" is forbidden: user not permitted to'
        ' sign requests with signerName "example.com/devices"'
    )
    refused = (403, told)
    failed = {**APPROVED, "type": "Failed"}
    assert await write(jane, certificate=certificate_text()) == refused
    assert await write(jane, conditions=[failed]) == refused
    assert await write(jane) == (200, "")
    await give(server, "signer", rule("sign", "signers", GROUP, SIGNER))
    code, why = await write(jane, conditions=[APPROVED])
    assert (code, 'updates may not add a condition of type "Approved"' in why) == (422, True)
    key = base64.b64decode(certificate_text()).replace(b" CERTIFICATE", b" SECRET KEY")
    empty = b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"
    for text, words in (
        (b"x", "must contain at least one CERTIFICATE PEM block"),
        (empty, "must contain at least one CERTIFICATE PEM block"),
        (empty.replace(b"x\n", b"AAAA\n"), "x509: malformed certificate"),
        (key, 'only CERTIFICATE PEM blocks are allowed, found "SECRET KEY"'),
        (empty.replace(b"x\n", b"a: b\n\nAAAA\n"), "no PEM block headers are permitted"),
    ):
        code, why = await write(jane, certificate=encoded(text))
        assert code == 422
        assert why.endswith(f'status.certificate: Invalid value: "<certificate data>": {words}'), (
            why
        )
    assert await write(jane, certificate=certificate_text()) == (200, "")
    assert await write(server.client, conditions=[failed]) == (200, "")
    code, why = await write(server.client, certificate=encoded(b"y"))
    assert (code, "updates may not modify existing certificate content" in why) == (422, True)
    assert (await write(server.client, certificate=None))[0] == 422
