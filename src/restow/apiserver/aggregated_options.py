"""Options of an aggregated server. Values only; nothing is opened here.

Invalid values raise a ValueError that gives the reason and names the flag.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from restow.apimachinery.name_formats import dns_1035_label_problem, dns_label_problem
from restow.apiserver.options import ServeOptions

COMPONENT_PREFIX: Final = "aggregated-"
COMPONENT_LENGTH_MAX: Final = 63
NAMESPACE_DEFAULT: Final = "kube-system"
GROUP_PRIORITY_DEFAULT: Final = 1_000
VERSION_PRIORITY_MAX: Final = 100
"""Priority of the first version; each further version gets one less."""
_STORE_ID: Final = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregatedOptions:
    """The options of `restow serve --aggregated`."""

    serve: ServeOptions
    """Listener, store and coordination. An aggregated server writes no kubeconfig, and has neither
    a front port nor a release."""
    main_kubeconfig: Path
    """Kubeconfig for the main servers, with a user that may register this server."""
    component: str = ""
    """Name of the component; empty: derived from its first group."""
    release_name: str = ""
    """Display name of the set of kinds it serves."""
    namespace: str = NAMESPACE_DEFAULT
    """Namespace of its Service."""
    service: str = ""
    """Name of its Service; empty: the component's name."""
    advertise_address: str = ""
    """The IP address at which the main servers reach it; empty: the bind address."""
    registers_itself: bool = True
    """Whether it maintains its Service, Endpoints and APIServices itself."""
    forget_stores: tuple[str, ...] = ()
    """Ids of stores that no longer exist: their servers' entries for these kinds are removed."""

    def __post_init__(self) -> None:
        for flag, name in (("--component", self.component), ("--service-name", self.service)):
            if name and (problem := dns_1035_label_problem(name)):
                raise ValueError(f"{flag} {name!r}: {problem}")
        if problem := dns_label_problem(self.namespace):
            raise ValueError(f"--service-namespace {self.namespace!r}: {problem}")
        if self.component == "kube-apiserver":
            raise ValueError("--component kube-apiserver: reserved for the main servers")
        for store in self.forget_stores:
            if not _STORE_ID.fullmatch(store):
                raise ValueError(
                    f"--forget-store {store!r} is not a store ID as StorageVersions name it"
                )
        serve = self.serve
        for flag, is_given in (
            ("--front-port", serve.front_port is not None),
            ("--front-fds", bool(serve.front_fds)),
            ("--kubeconfig", serve.kubeconfig is not None),
            ("--release", serve.release is not None),
            ("--client-ca-file", serve.client_ca_file is not None),
            ("--token-auth-file", serve.token_auth_file is not None),
            (
                "--service-account-signing-key-file",
                serve.service_account_signing_key_file is not None,
            ),
        ):
            if is_given:
                raise ValueError(
                    f"{flag}: cannot be used with --aggregated: this is the task of the main"
                    " servers"
                )
        if self.advertise_address:
            _check_address("--advertise-address", self.advertise_address)
        elif self.registers_itself:
            _check_address("--bind", serve.bind)

    @property
    def address(self) -> str:
        """IP address at which the main servers reach it; empty if it does not register itself."""
        return self.advertise_address or (self.serve.bind if self.registers_itself else "")

    def component_for(self, groups: Sequence[str]) -> str:
        """The component name of a server of these groups."""
        if self.component:
            return self.component
        made = COMPONENT_PREFIX + groups[0].replace(".", "-")
        return made[:COMPONENT_LENGTH_MAX].rstrip("-")

    def service_for(self, component: str) -> str:
        return self.service or component


def _check_address(flag: str, text: str) -> None:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(
            f"{flag} {text!r} is not an IP address at which the main servers can reach this one:"
            " give --advertise-address"
        ) from None
    if found.is_unspecified:
        raise ValueError(f"{flag} {text} is the unspecified address: give --advertise-address")
