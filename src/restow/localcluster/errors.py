"""The errors of a cluster. Their text is shown to the user.

ClusterError
├── ClusterRefused     invalid options, or an unusable data directory
├── ClusterRuns        another supervisor uses the data directory
├── ClusterFailed      a process that the cluster needs has failed
├── ControlRefused     the supervisor rejected a request
└── NoClusterRuns      no supervisor is running
"""

from __future__ import annotations


class ClusterError(Exception):
    """Base class of all errors in this module."""


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
