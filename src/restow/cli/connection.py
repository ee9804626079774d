"""How client commands find a cluster: by a kubeconfig, or by the service account of their pod.

The flags are those of kubectl. Not here: what the commands do with the cluster.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

from restow.client import ClientConfig, ConfigOverrides, find_config, read_kubeconfig

HELP: Final = """\
The cluster is selected as by kubectl: --kubeconfig, or the files of $KUBECONFIG, or
~/.kube/config. In a pod without any of these, its service account is used. The other flags have
precedence over the file, as in kubectl.
"""


def add_connection(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("cluster", HELP).add_argument
    add("--kubeconfig", type=Path, metavar="FILE")
    add("--context", metavar="NAME", help="context of the kubeconfig; default: current-context")
    add("--cluster", default="", metavar="NAME", help="cluster of the kubeconfig")
    add("--user", default="", metavar="NAME", help="user of the kubeconfig")
    add("-s", "--server", default="", metavar="URL", help="address of the API server")
    add("--tls-server-name", default="", metavar="NAME", help="name in the server's certificate")
    add("--certificate-authority", type=Path, metavar="FILE", help="CA of the server, as PEM")
    add(
        "--insecure-skip-tls-verify",
        action="store_true",
        help="do not verify the server's certificate: another server can read the credentials",
    )
    add(
        "--token",
        default="",
        help="bearer token; other users of the machine can see it, so prefer tokenFile",
    )
    add("--client-certificate", type=Path, metavar="FILE", help="client certificate, as PEM")
    add("--client-key", type=Path, metavar="FILE", help="key of the client certificate, as PEM")
    add("--as", dest="as_user", default="", metavar="USER", help="impersonate this user")
    add(
        "--as-group",
        action="append",
        default=[],
        metavar="GROUP",
        help="impersonate this group; can be repeated",
    )
    add("--as-uid", default="", metavar="UID", help="impersonate this UID")


def find_cluster(arguments: argparse.Namespace) -> ClientConfig:
    """Return the client configuration. Raises ConfigInvalid, which names file and field."""
    overrides = overrides_of(arguments)
    if arguments.kubeconfig is not None:
        return read_kubeconfig(
            [arguments.kubeconfig], context=arguments.context, overrides=overrides
        )
    try:
        home = Path.home()
    except RuntimeError:  # a user without a home directory, as in a container
        home = Path("/")
    return find_config(os.environ, home=home, context=arguments.context, overrides=overrides)


def overrides_of(arguments: argparse.Namespace) -> ConfigOverrides:
    """The flags that have precedence over the kubeconfig."""
    return ConfigOverrides(
        cluster=arguments.cluster,
        user=arguments.user,
        server=arguments.server,
        tls_server_name=arguments.tls_server_name,
        certificate_authority=arguments.certificate_authority,
        insecure_skip_tls_verify=arguments.insecure_skip_tls_verify,
        token=arguments.token,
        client_certificate=arguments.client_certificate,
        client_key=arguments.client_key,
        as_user=arguments.as_user,
        as_groups=tuple(arguments.as_group),
        as_uid=arguments.as_uid,
    )


def selects_cluster(arguments: argparse.Namespace) -> bool:
    """Whether a flag selects the cluster."""
    given = (arguments.kubeconfig, arguments.context, arguments.cluster, arguments.server)
    return any(given)


def repeated_flags(given: dict[str, object]) -> tuple[str, ...]:
    """The flags of a running command for a printed one: `given` has their values.

    A token is replaced by a placeholder. Not `--kubeconfig` and `--context`. kubectl accepts the
    same flags.
    """
    flags: list[str] = []
    for name in _REPEATED:
        value = given.get(name)
        flag = "--" + name.replace("_", "-").replace("as-user", "as")
        if value is True:
            flags.append(flag)
        elif isinstance(value, list):
            flags += [word for each in value for word in (flag, str(each))]
        elif value:
            flags += [flag, "TOKEN" if name == "token" else str(value)]
    return tuple(flags)


_REPEATED: Final = (
    "cluster",
    "user",
    "server",
    "tls_server_name",
    "certificate_authority",
    "insecure_skip_tls_verify",
    "token",
    "client_certificate",
    "client_key",
    "as_user",
    "as_group",
    "as_uid",
)
