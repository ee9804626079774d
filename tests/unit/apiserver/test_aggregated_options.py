"""Options of an aggregated server: derived values, and rejected ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from restow.apiserver.aggregated_options import COMPONENT_LENGTH_MAX, AggregatedOptions
from restow.apiserver.options import ServeOptions


def options(serve: dict[str, Any] | None = None, **more: Any) -> AggregatedOptions:
    return AggregatedOptions(
        serve=ServeOptions(data_dir=Path("data"), **(serve or {})),
        main_kubeconfig=Path("kubeconfig"),
        **more,
    )


def test_the_component_follows_from_the_group() -> None:
    """It is a valid Service name, however long the group is; a given name is kept."""
    assert options().component_for(["a.example.com"]) == "aggregated-a-example-com"
    assert len(options().component_for(["x" * 100 + ".com"])) == COMPONENT_LENGTH_MAX
    given = options(component="parts")
    assert given.component_for(["a.example.com"]) == "parts"
    assert given.service_for("parts") == "parts"
    assert options(service="svc").service_for("parts") == "svc"


@pytest.mark.parametrize(
    ("serve", "more", "why"),
    [
        ({}, {"component": "Parts"}, "--component 'Parts'"),
        ({}, {"component": "kube-apiserver"}, "reserved for the main servers"),
        ({}, {"service": "a.b"}, "--service-name 'a.b'"),
        ({}, {"namespace": "a/b"}, "--service-namespace 'a/b'"),
        ({}, {"advertise_address": "host"}, "--advertise-address 'host' is not an IP address"),
        ({}, {"forget_stores": ("mine",)}, "--forget-store 'mine' is not a store ID"),
        ({"bind": "0.0.0.0"}, {}, "is the unspecified address: give --advertise-address"),
        ({"bind": "example.com"}, {}, "is not an IP address"),
        ({"front_port": 1}, {}, "--front-port: cannot be used with --aggregated"),
        ({"release": Path("x")}, {}, "--release: cannot be used with --aggregated"),
        ({"token_auth_file": Path("x")}, {}, "--token-auth-file: cannot be used with --aggregated"),
        (
            {"service_account_signing_key_file": Path("x")},
            {},
            "--service-account-signing-key-file: cannot be used with --aggregated",
        ),
    ],
)
def test_invalid_options_are_rejected(serve: Any, more: Any, why: str) -> None:
    """Each error names its flag."""
    with pytest.raises(ValueError, match=r".*") as refused:
        options(serve, **more)
    assert why in str(refused.value)


def test_where_the_main_servers_find_it() -> None:
    """Its address is the bind address, unless another one is advertised or it does not register."""
    assert options().address == "127.0.0.1"
    assert options({"bind": "0.0.0.0"}, advertise_address="10.0.0.7").address == "10.0.0.7"
    assert options({"bind": "0.0.0.0"}, registers_itself=False).address == ""
