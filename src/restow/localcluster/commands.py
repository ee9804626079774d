"""The command lines of the processes of a cluster. Nothing is started here."""

from __future__ import annotations

from collections.abc import Sequence

from restow.localcluster.child_process import Launch, restow_command
from restow.localcluster.cluster_plan import OWN_ETCD, RELEASE_DEFAULT
from restow.localcluster.etcd import store_address
from restow.localcluster.layout import Layout
from restow.localcluster.state import ClusterState


def server_store(state: ClusterState, layout: Layout) -> str:
    """The address of the store, for `restow serve --store`."""
    if state.store == OWN_ETCD:
        return store_address(state.etcd, layout)
    return f"sqlite:{layout.store}" if state.store == "sqlite" else state.store


def server_launch(
    index: int, state: ClusterState, *, layout: Layout, front_fds: Sequence[int]
) -> Launch:
    """The launch of one server. The front port sockets are rotated so that its own comes first."""
    server = state.servers[index]
    fds = (*front_fds[index:], *front_fds[:index])
    words = [
        "serve",
        f"--data-dir={layout.data_dir}",
        f"--store={server_store(state, layout)}",
        f"--bind={state.bind}",
        f"--port={server.port}",
        f"--front-fds={','.join(map(str, fds))}",
        f"--kubeconfig={layout.server_kubeconfig(index)}",
    ]
    if server.release != RELEASE_DEFAULT:
        words.append(f"--release={server.release}")
    return Launch(command=restow_command(*words, *state.server_options), fds=fds)


def controllers_launch(layout: Layout) -> Launch:
    """The launch of the controllers, which use the front port."""
    # Any free port for health and metrics: several clusters can run on one machine.
    words = ("controllers", f"--kubeconfig={layout.front_kubeconfig}", "--port=0")
    return Launch(command=restow_command(*words))


def needs_certificate(words: Sequence[str]) -> bool:
    """Whether servers with these options require client certificates."""
    return option_value(words, "--tls-client-auth") == "required"


def option_value(words: Sequence[str], flag: str) -> str:
    """The value of an option of `restow serve`, the last one if repeated; empty if not given."""
    chosen = ""
    for number, word in enumerate(words):
        name, _, value = word.partition("=")
        if name == flag:
            chosen = value or "".join(words[number + 1 : number + 2])
    return chosen
