"""Follows the advice of `restow preflight` and `restow upgrade` as a user at a terminal does.

The commands are extracted from the printed text and run unchanged; a question is answered with yes,
and `kubectl edit` opens an editor that makes the edit which the advice describes.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.e2e.localcluster.running import RESTOW, WAIT_SECONDS_MAX, Up

COMMAND: Final = re.compile(r"\b(?:kubectl|restow) [^;,()]*[^;,() ]")
"""A command ends where the sentence continues: at a comma, a semicolon or a bracket."""
ROUNDS_MAX: Final = 3
"""Advice names only a few keys at a time."""

Object = dict[str, Any]
Edit = Callable[[Object], Object]


@dataclass(frozen=True, slots=True)
class Advised:
    """One blocker or warning as it was printed."""

    resource: str | None
    reason: str
    what: str
    why: str
    advice: str

    @property
    def ways(self) -> list[list[str]]:
        """Returns the commands of each alternative that the advice offers."""
        return [COMMAND.findall(way) for way in re.split(r"[;,] or\b", self.advice)]


class Person:
    """A user at a terminal of a cluster."""

    def __init__(self, up: Up, directory: Path) -> None:
        self.up = up
        self.directory = directory
        self.kubeconfig = up.data_dir / "kubeconfig"

    def preflight(self, *words: str) -> Object:
        """Runs a preflight; returns its JSON."""
        flags = ("--kubeconfig", str(self.kubeconfig), "-o=json")
        done = self.run(*RESTOW, "preflight", *words, *flags)
        assert done.returncode in (0, 1), done.stderr
        found: Object = json.loads(done.stdout)
        return found

    def blockers(self, *words: str, among: str = "blockers") -> list[Advised]:
        return [Advised(**each) for each in self.preflight(*words)[among]]

    def find(
        self, resource: str | None, reason: str, *words: str, among: str = "blockers"
    ) -> list[Advised]:
        """Returns the blockers, or warnings, with this reason."""
        return [
            each
            for each in self.blockers(*words, among=among)
            if (each.resource, each.reason) == (resource, reason)
        ]

    def follow(self, advised: Advised, *, way: int = 0, edit: Edit | None = None) -> None:
        """Runs all commands of one alternative, in their order."""
        commands = advised.ways[way]
        assert commands, f"no command in: {advised.advice}"
        for command in commands:
            done = self.typed(command, edit=edit)
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"

    def remove(
        self,
        resource: str | None,
        reason: str,
        *words: str,
        way: int = 0,
        edit: Edit | None = None,
        says: str = "",
        among: str = "blockers",
    ) -> None:
        """Finds a blocker, follows its advice, and checks that it is removed. `says`: part of
        its message; `among`: "warnings" for a warning."""

        def found() -> list[Advised]:
            alike = self.find(resource, reason, *words, among=among)
            return [each for each in alike if says in each.what]

        blocking = found()
        assert blocking, f"no blocker {reason} of {resource}: {self.blockers(*words)}"
        for _ in range(ROUNDS_MAX):
            for each in blocking:
                self.follow(each, way=way, edit=edit)
            blocking = found()
            if not blocking:
                return
        raise AssertionError(f"the advice was followed, and there still is: {blocking}")

    def typed(self, line: str, *, edit: Edit | None = None) -> subprocess.CompletedProcess[str]:
        """Runs a line as it was printed."""
        words = shlex.split(line)
        program = RESTOW if words[0] == "restow" else (words[0],)
        return self.run(*program, *words[1:], edit=edit)

    def run(self, *words: str, edit: Edit | None = None) -> subprocess.CompletedProcess[str]:
        """Runs a command with a terminal, and answers every question with yes."""
        environment = {**os.environ, "HOME": str(self.directory)}
        if edit is not None and "edit" in words:
            return self._edited(words, environment, edit)
        ours, theirs = os.openpty()
        try:
            os.write(ours, b"y\n")
            return subprocess.run(
                words,
                stdin=theirs,
                capture_output=True,
                text=True,
                check=False,
                timeout=WAIT_SECONDS_MAX,
                cwd=self.directory,
                env=environment,
            )
        finally:
            os.close(ours)
            os.close(theirs)

    def _edited(
        self, words: tuple[str, ...], environment: dict[str, str], edit: Edit
    ) -> subprocess.CompletedProcess[str]:
        """Runs `kubectl edit` with an editor that writes the edited object."""
        shown = self.run(*("get" if each == "edit" else each for each in words), "-o=yaml")
        assert shown.returncode == 0, shown.stderr
        wanted = self.directory / "edited.yaml"
        wanted.write_text(yaml.safe_dump(edit(yaml.safe_load(shown.stdout))))
        environment["KUBE_EDITOR"] = f"cp {wanted}"
        return subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT_SECONDS_MAX,
            cwd=self.directory,
            env=environment,
        )

    def put(self, key: str, value: object) -> None:
        """Stores a value directly, past the servers."""
        text = value if isinstance(value, str) else json.dumps(value)
        done = self.run(*RESTOW, "store", "put", f"--data-dir={self.up.data_dir}", key, text)
        assert done.returncode == 0, done.stderr

    def create(self, *objects: Object) -> None:
        """Creates these objects with kubectl."""
        path = self.directory / "created.yaml"
        path.write_text(yaml.safe_dump_all(objects))
        self.up.kubectl("create", f"--filename={path}")


def release_file(directory: Path, name: str, *kinds: Object) -> Path:
    """Writes a release file with these kinds."""
    path = directory / f"{name}.yaml"
    path.write_text(yaml.safe_dump({"release": name, "kinds": list(kinds)}))
    return path


def kind(name: str, *versions: str, storage: str = "", scope: str = "Namespaced") -> Object:
    """A kind of the group example.com."""
    return {
        "group": "example.com",
        "kind": name,
        "plural": f"{name.lower()}s",
        "scope": scope,
        "versions": [{"name": each} for each in versions],
        "storage": storage or versions[0],
        "conversion": "rename",
        "schema": "open",
    }


def crd(name: str, *versions: str, scope: str = "Namespaced", **spec: Any) -> Object:
    """A CRD of the group example.com; the first version is the storage version."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{name.lower()}s.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"kind": name, "plural": f"{name.lower()}s"},
            "scope": scope,
            "versions": [crd_version(each, storage=each == versions[0]) for each in versions],
            **spec,
        },
    }


def crd_version(name: str, *, served: bool = True, storage: bool = False) -> Object:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "name": name,
        "served": served,
        "storage": storage,
        "schema": {"openAPIV3Schema": schema},
    }


def stored(kind: str, version: str, **metadata: str) -> Object:
    """An object of a kind of the group example.com."""
    return {
        "apiVersion": f"example.com/{version}",
        "kind": kind,
        "metadata": {"name": "one", **metadata},
    }


def raw(kind: str, version: str, **metadata: str) -> Object:
    """The same in its stored form."""
    own = {"namespace": "default", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return stored(kind, version, **own | metadata)
