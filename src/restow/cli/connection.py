"""How commands find a cluster: a kubeconfig, or the account of the pod that they run in.

Shared by the commands that are clients. Not here: what they do with it.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from restow.client import ClientConfig, find_config, read_kubeconfig

HELP = """\
The cluster is found as kubectl finds it: --kubeconfig, or the files of $KUBECONFIG, or
~/.kube/config. In a pod without any of these, its service account is used.
"""


def add_connection(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("cluster", HELP).add_argument
    add("--kubeconfig", type=Path, metavar="FILE")
    add("--context", metavar="NAME", help="default: the current one of the kubeconfig")


def find_cluster(arguments: argparse.Namespace) -> ClientConfig:
    """What was asked for, or what there is. Raises ConfigInvalid, which names file and field."""
    if arguments.kubeconfig is not None:
        return read_kubeconfig([arguments.kubeconfig], context=arguments.context)
    try:
        home = Path.home()
    except RuntimeError:  # an account without a home, as in a container
        home = Path("/")
    return find_config(os.environ, home=home, context=arguments.context)
