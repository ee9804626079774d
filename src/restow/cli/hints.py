"""Commands in messages, completed with the flags that select the cluster in use.

Without `--data-dir` or `--kubeconfig` a hint would act on another cluster when it is copied into a
shell. `Hints.of` keeps the flags of the running command; `command` renders one command line, and
`complete` adds the flags to the commands in an advice text.

Not here: the advice itself.
"""

from __future__ import annotations

import argparse
import re
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from restow.cli.connection import repeated_flags
from restow.cli.etcd_files import given_etcd_files
from restow.cli.store_arguments import DAMAGED_ADVICE, DATA_DIR_DEFAULT
from restow.localcluster.layout import Layout
from restow.storage.errors import StoreDamaged

_BY_DIRECTORY: Final = frozenset({"serve", "up", "upgrade"})
_BY_STORE: Final = frozenset({"backup", "census", "restore", "store"})
_BY_API: Final = frozenset({"controllers", "kubectl", "migrate", "preflight", "status"})
_BY_ALL: Final = frozenset({"doctor"})
_STORE_VERBS: Final = "put|delete|get|list|watch|compact|info|shell"
_COMMAND: Final = re.compile(
    r"\b(?:kubectl|restow (?:"
    + "|".join(sorted((_BY_DIRECTORY | _BY_STORE | _BY_ALL | _BY_API) - {"kubectl", "store"}))
    + rf"|store (?:{_STORE_VERBS})))\b(?!:| --(?:data-dir|store|snapshot|kubeconfig|server)\b)"
)
"""A command in an advice text without a flag that selects the cluster. A name followed by a colon
is not matched: it begins an error message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """The flags that selected the cluster in use."""

    data_dir: Path | None = None
    """The directory of the cluster; None if unknown."""
    store: tuple[str, ...] = ()
    """`--store` with its flags, as given."""
    kubeconfig: Path | None = None
    context: str = ""
    connection: tuple[str, ...] = ()
    """The other flags that select cluster and user."""
    asks_api: bool = False
    """The cluster is selected by a kubeconfig, which does not locate its store."""

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> Hints:
        """Take the flags of the running command."""
        given = vars(arguments)
        store = given.get("store")
        flags = ("--store", str(store), *given_etcd_files(arguments)) if store else ()
        hints = cls(
            data_dir=given.get("data_dir"),
            store=flags,
            kubeconfig=given.get("kubeconfig"),
            context=given.get("context") or "",
            connection=repeated_flags(given) if "kubeconfig" in given else (),
            asks_api="kubeconfig" in given,
        )
        beside = hints.kubeconfig.parent if hints.kubeconfig is not None else None
        if hints.data_dir is None and not store and beside is not None and _is_cluster(beside):
            return replace(hints, data_dir=beside)
        return hints

    def command(self, name: str, *words: str) -> str:
        """`restow NAME WORDS`, or `kubectl WORDS`, with the flags that select this cluster."""
        program = (name,) if name == "kubectl" else ("restow", name)
        if name == "store":
            program, words = (*program, *words[:1]), words[1:]
        return shlex.join((*program, *self._flags(name), *words))

    def complete(self, advice: str) -> str:
        """The advice, with these flags added to each command that has none."""

        def completed(found: re.Match[str]) -> str:
            words = found[0].split()
            flags = self._flags(words[1] if words[0] == "restow" else words[0])
            return " ".join((found[0], shlex.join(flags))) if flags else found[0]

        return _COMMAND.sub(completed, advice)

    def failure(self, error: Exception, address: str) -> str:
        """Why a store could not be used; for a damaged one with its path and the remedy."""
        if not isinstance(error, StoreDamaged):
            return str(error)
        path = address.partition(":")[2] if address.startswith("sqlite:") else ""
        place = f"{path}: " if path and path not in str(error) else ""
        return f"{place}{error}; {self.complete(DAMAGED_ADVICE)}"

    def _flags(self, command: str) -> tuple[str, ...]:
        if command in _BY_API:
            return self._api()
        if command in _BY_DIRECTORY:
            return self._directory()
        if command in _BY_STORE:
            return self.store or self._directory() or self._unknown_store()
        if self.kubeconfig is None and self.data_dir is not None:
            return self._directory()
        return (*self.store, *self._directory(), *self._api())

    def _directory(self) -> tuple[str, ...]:
        if self.data_dir is None or self.data_dir == DATA_DIR_DEFAULT:
            return ()
        return ("--data-dir", str(self.data_dir))

    def _unknown_store(self) -> tuple[str, ...]:
        """A placeholder for `--store`, if the cluster is selected by a kubeconfig only."""
        return ("--store", "ADDRESS") if self.asks_api and self.data_dir is None else ()

    def _api(self) -> tuple[str, ...]:
        """`--kubeconfig` and `--context`; $KUBECONFIG may not contain that of a data directory."""
        file = self.kubeconfig
        if file is None and self.data_dir is not None:
            file = Layout(self.data_dir).kubeconfig
        flags = () if file is None else ("--kubeconfig", str(file))
        context = ("--context", self.context) if self.context else ()
        return (*flags, *context, *self.connection)


def _is_cluster(directory: Path) -> bool:
    """Whether the directory belongs to `restow up` or `restow serve`."""
    layout = Layout(directory)
    return layout.pki.is_dir() and (layout.state.is_file() or layout.store.is_file())
