"""The paths of all files in a data directory. Nothing is opened here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of one data directory."""

    data_dir: Path

    @property
    def lock(self) -> Path:
        """Locked by the supervisor while it runs."""
        return self.data_dir / "up.lock"

    @property
    def state(self) -> Path:
        return self.data_dir / "state.json"

    @property
    def restored(self) -> Path:
        """Written by `restow restore`, removed when a cluster is ready on the restored store."""
        return self.data_dir / "restored.json"

    @property
    def kubeconfig(self) -> Path:
        """For users; exists while the cluster is ready."""
        return self.data_dir / "kubeconfig"

    @property
    def pki(self) -> Path:
        return self.data_dir / "pki"

    @property
    def store(self) -> Path:
        return self.data_dir / "store.db"

    @property
    def releases(self) -> Path:
        """Copies of release files, named by their SHA-256."""
        return self.data_dir / "releases"

    @property
    def logs(self) -> Path:
        return self.data_dir / "logs"

    @property
    def servers(self) -> Path:
        """Files of single servers, and of the cluster's controllers."""
        return self.data_dir / "servers"

    @property
    def front_kubeconfig(self) -> Path:
        """Kubeconfig of the cluster's own controllers, which start before the cluster is ready."""
        return self.servers / "front.kubeconfig"

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def server_kubeconfig(self, index: int) -> Path:
        return self.servers / f"{index}.kubeconfig"

    def etcd(self, index: int) -> Path:
        return self.data_dir / "etcd" / str(index)
