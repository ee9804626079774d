"""Where everything of a cluster is, in its data directory. Names only; nothing is opened here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of one data directory."""

    data_dir: Path

    @property
    def lock(self) -> Path:
        """Held by the supervisor for as long as it lives."""
        return self.data_dir / "up.lock"

    @property
    def state(self) -> Path:
        return self.data_dir / "state.json"

    @property
    def restored(self) -> Path:
        """Left by `restow restore` until a cluster was ready on the restored store."""
        return self.data_dir / "restored.json"

    @property
    def kubeconfig(self) -> Path:
        """For people; there when the cluster is ready."""
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
        """Files of single servers, and of those who work for the cluster."""
        return self.data_dir / "servers"

    @property
    def front_kubeconfig(self) -> Path:
        """For the cluster's own controllers, which start before it is ready."""
        return self.servers / "front.kubeconfig"

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def server_kubeconfig(self, index: int) -> Path:
        return self.servers / f"{index}.kubeconfig"

    def etcd(self, index: int) -> Path:
        return self.data_dir / "etcd" / str(index)
