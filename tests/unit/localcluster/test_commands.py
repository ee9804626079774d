"""The options of the servers of a cluster, as the parent reads them."""

from __future__ import annotations

import pytest

from restow.localcluster.commands import needs_certificate


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), False),
        (("--tls-client-auth=required",), True),
        (("--tls-client-auth", "required"), True),
        (("--tls-client-auth",), False),
        (("--tls-client-auth=required", "--tls-client-auth=optional"), False),
        (("-v", "required"), False),
    ],
)
def test_whether_clients_need_a_certificate(words: tuple[str, ...], expected: bool) -> None:
    """Then the kubeconfig of the cluster needs a certificate; the last option counts."""
    assert needs_certificate(words) == expected
