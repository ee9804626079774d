"""Options of an aggregated server: what follows from them, and what cannot be."""

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
    """It is a name that a Service can have, however long the group is; a given one stays."""
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
        ({}, {"component": "kube-apiserver"}, "that is what the main servers are"),
        ({}, {"service": "a.b"}, "--service-name 'a.b'"),
        ({}, {"namespace": "a/b"}, "--service-namespace 'a/b'"),
        ({}, {"advertise_address": "host"}, "--advertise-address 'host' is no IP address"),
        ({}, {"forget_stores": ("mine",)}, "--forget-store 'mine' is no id of a store"),
        ({"bind": "0.0.0.0"}, {}, "is everywhere: give --advertise-address"),
        ({"bind": "example.com"}, {}, "is no IP address"),
        ({"front_port": 1}, {}, "--front-port: not with --aggregated"),
        ({"release": Path("x")}, {}, "--release: not with --aggregated"),
        ({"token_auth_file": Path("x")}, {}, "--token-auth-file: not with --aggregated"),
        (
            {"service_account_signing_key_file": Path("x")},
            {},
            "--service-account-signing-key-file: not with --aggregated",
        ),
    ],
)
def test_what_cannot_work_is_refused(serve: Any, more: Any, why: str) -> None:
    """Each refusal names its flag."""
    with pytest.raises(ValueError, match=r".*") as refused:
        options(serve, **more)
    assert why in str(refused.value)


def test_where_the_main_servers_find_it() -> None:
    """Its address is the one it listens on, unless another is advertised, or nobody need know."""
    assert options().address == "127.0.0.1"
    assert options({"bind": "0.0.0.0"}, advertise_address="10.0.0.7").address == "10.0.0.7"
    assert options({"bind": "0.0.0.0"}, registers_itself=False).address == ""
