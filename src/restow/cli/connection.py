"""How client commands find a cluster: by a kubeconfig, or by the service account of their pod.

Not here: what the commands do with it.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from restow.client import ClientConfig, find_config, read_kubeconfig

HELP = """\
The cluster is selected as by kubectl: --kubeconfig, or the files of $KUBECONFIG, or
~/.kube/config. In a pod without any of these, its service account is used.
"""


def add_connection(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("cluster", HELP).add_argument
    add("--kubeconfig", type=Path, metavar="FILE")
    add("--context", metavar="NAME", help="context of the kubeconfig; default: current-context")


def find_cluster(arguments: argparse.Namespace) -> ClientConfig:
    """Return the client configuration. Raises ConfigInvalid, which names file and field."""
    if arguments.kubeconfig is not None:
        return read_kubeconfig([arguments.kubeconfig], context=arguments.context)
    try:
        home = Path.home()
    except RuntimeError:  # a user without a home directory, as in a container
        home = Path("/")
    return find_config(os.environ, home=home, context=arguments.context)
