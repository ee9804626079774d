"""What one may choose about an aggregated server. Values only; nothing is opened here.

Values that cannot work raise a ValueError that says why and names the flag.
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
"""Of the first version; each further one has one less."""
_STORE_ID: Final = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregatedOptions:
    """The options of `restow serve --aggregated`."""

    serve: ServeOptions
    """How it listens, where it stores, how it agrees with the others. It writes no kubeconfig, and
    has neither a front port nor a release."""
    main_kubeconfig: Path
    """How to reach the main servers, as somebody who may register this one."""
    component: str = ""
    """What it is called among the servers; empty: made from its first group."""
    release_name: str = ""
    """What its kinds are called together, for people."""
    namespace: str = NAMESPACE_DEFAULT
    """Where its Service is."""
    service: str = ""
    """What its Service is called; empty: as the component."""
    advertise_address: str = ""
    """The IP address at which the main servers reach it; empty: the one it listens on."""
    registers_itself: bool = True
    """Whether it keeps its Service, its Endpoints and its APIServices."""
    forget_stores: tuple[str, ...] = ()
    """Ids of stores that are gone: what their servers have said of these kinds is taken out."""

    def __post_init__(self) -> None:
        for flag, name in (("--component", self.component), ("--service-name", self.service)):
            if name and (problem := dns_1035_label_problem(name)):
                raise ValueError(f"{flag} {name!r}: {problem}")
        if problem := dns_label_problem(self.namespace):
            raise ValueError(f"--service-namespace {self.namespace!r}: {problem}")
        if self.component == "kube-apiserver":
            raise ValueError("--component kube-apiserver: that is what the main servers are")
        for store in self.forget_stores:
            if not _STORE_ID.fullmatch(store):
                raise ValueError(
                    f"--forget-store {store!r} is no id of a store, as reports name it"
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
                raise ValueError(f"{flag}: not with --aggregated, which leaves that to the main")
        if self.advertise_address:
            _check_address("--advertise-address", self.advertise_address)
        elif self.registers_itself:
            _check_address("--bind", serve.bind)

    @property
    def address(self) -> str:
        """The IP address at which the main servers reach it; empty: nobody need know."""
        return self.advertise_address or (self.serve.bind if self.registers_itself else "")

    def component_for(self, groups: Sequence[str]) -> str:
        """What a server of these groups is called."""
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
            f"{flag} {text!r} is no IP address, by which the main servers could reach this one:"
            " give --advertise-address"
        ) from None
    if found.is_unspecified:
        raise ValueError(f"{flag} {text} is everywhere: give --advertise-address")
