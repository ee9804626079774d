"""What can go wrong with a cluster. The text is for the person who asked for it.

ClusterError
├── ClusterRefused     it cannot be like this: the wishes, or what is found in the directory
├── ClusterRuns        another supervisor has the data directory
├── ClusterFailed      a process that the cluster cannot do without does not run
├── ControlRefused     the supervisor says no
└── NoClusterRuns      there is no supervisor to talk to
"""

from __future__ import annotations


class ClusterError(Exception):
    """The root of the tree above."""


class ClusterRefused(ClusterError):
    pass


class ClusterRuns(ClusterError):
    pass


class ClusterFailed(ClusterError):
    pass


class ControlRefused(ClusterError):
    pass


class NoClusterRuns(ClusterError):
    pass
