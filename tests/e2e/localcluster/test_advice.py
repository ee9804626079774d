"""The advice of every blocker, followed as it is printed, removes the blocker.

One cluster of two servers serves most cases, each with kinds of its own. Controllers do not run, so
that nothing is migrated before a test starts it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from tests.e2e.custom.webhook_thread import WebhookThread
from tests.e2e.localcluster.following import (
    Object,
    Person,
    crd,
    crd_version,
    kind,
    raw,
    release_file,
    stored,
)
from tests.e2e.localcluster.running import RESTOW, WAIT_SECONDS_MAX, Up, wait_for
from tests.support.encryption_files import write_encryption_file

KINDS = ("Bolt", "Cam", "Cog", "Gear", "Hub", "Nut", "Pin", "Rod", "Vault")
GATE_OFF = (
    "--feature-gates=StorageVersionAPI=false,APIServerIdentity=false",
    "--change-coordination-mode",
)
FOREIGN = "kube-apiserver-abc"
RBAC = "rbac.authorization.k8s.io"
RIGHT = re.compile(r"\b[a-z]+\.[a-z.0-9-]+\.(?:dev|io)\b")
"""A resource with its group."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("advice")


@pytest.fixture(scope="module")
def keys_file(directory: Path) -> Path:
    """The encryption configuration of the servers."""
    return configure_keys(directory / "keys.yaml", "aesgcm:k1")


@pytest.fixture(scope="module")
def person(directory: Path, keys_file: Path) -> Iterator[Person]:
    """A user of a cluster whose servers read v1 and v2 of each kind, and write v1."""
    base = release_file(directory, "base", *(kind(each, "v1", "v2") for each in KINDS))
    words = ("--port=0", "--servers=2", f"--release={base}", "--no-controllers")
    option = f"--server-option=--encryption-provider-config={keys_file}"
    with Up(directory / "d", *words, option) as up:
        yield Person(up.ready(), directory)


def configure_keys(path: Path, *specs: str) -> Path:
    return write_encryption_file(path, *specs, "identity", resources=("vaults.example.com",))


def target(person: Person, name: str, *changed: Object, without: str = "") -> str:
    """Writes a release with all kinds of the servers, except for these changes."""
    others = {each["kind"] for each in changed} | {without}
    kinds = [kind(each, "v1", "v2") for each in KINDS if each not in others]
    return f"--to={release_file(person.directory, name, *kinds, *changed)}"


@pytest.fixture(scope="module")
def same(person: Person) -> str:
    return target(person, "same")


def key_of(plural: str, name: str = "one") -> str:
    return f"/registry/example.com/{plural}/default/{name}"


def test_values_of_a_version_that_no_server_reads(person: Person, same: str) -> None:
    """A few are named at a time; all of them are removed."""
    for index in range(4):
        person.put(key_of("bolts", f"b{index}"), raw("Bolt", "v9"))
    person.remove("bolts.example.com", "undecodable", same)


def test_values_of_a_version_that_the_target_does_not_read(person: Person) -> None:
    """Servers that write a version which the target reads migrate them."""
    person.put(key_of("pins"), raw("Pin", "v2"))
    person.remove("pins.example.com", "undecodable", target(person, "pin-v1", kind("Pin", "v1")))


def test_a_contradiction(person: Person, same: str) -> None:
    """It is reported at least once, though servers correct the state concurrently."""
    flags = ("--kubeconfig", str(person.kubeconfig))
    done = person.run(*RESTOW, "migrate", "rods.example.com", "--force", *flags)
    assert done.returncode == 0, done.stderr
    person.put(key_of("rods"), raw("Rod", "v2"))
    person.remove("rods.example.com", "contradiction", same, way=1)


def test_values_at_unexpected_keys(person: Person, same: str) -> None:
    """They are deleted from the store: no API request finds them."""
    person.put("/registry/example.com/nuts/one", raw("Nut", "v1"))
    person.remove("nuts.example.com", "misplaced", same)


def test_values_from_before_a_crd_had_its_scope(person: Person, same: str) -> None:
    """The same for a CRD that was removed by force and created with another scope."""
    person.create(crd("Dock", "v1", scope="Cluster"))
    person.up.kubectl("wait", "--for=condition=Established", "crd/docks.example.com")
    person.put(key_of("docks"), raw("Dock", "v1"))
    person.remove("docks.example.com", "misplaced", same)


def test_a_user_without_permission(person: Person, same: str) -> None:
    """With the permissions that the advice names, the same user gets a result."""
    person.up.kubectl("create", "serviceaccount", "looker")
    token = person.up.kubectl("create", "token", "looker").strip()
    config = yaml.safe_load(person.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": token}
    looker = Person(person.up, person.directory)
    looker.kubeconfig = person.directory / "looker"
    looker.kubeconfig.write_text(yaml.safe_dump(config))
    found = looker.find(None, "unseen", same)
    rights = {right for each in found for right in RIGHT.findall(f"{each.what} {each.advice}")}
    assert "storagescans.storage.restow.dev" in rights, found
    rules = [
        {
            "apiGroups": [each.partition(".")[2] for each in rights],
            "resources": [each.partition(".")[0] for each in rights],
            "verbs": ["list", "create"],
        }
    ]
    role = {"kind": "ClusterRole", "metadata": {"name": "looker"}, "rules": rules}
    binding = {
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "looker"},
        "roleRef": {"kind": "ClusterRole", "name": "looker", "apiGroup": RBAC},
        "subjects": [{"kind": "ServiceAccount", "name": "looker", "namespace": "default"}],
    }
    person.create(*({"apiVersion": f"{RBAC}/v1", **each} for each in (role, binding)))
    assert not looker.find(None, "unseen", same)


def test_a_kind_with_another_scope(person: Person, same: str) -> None:
    """Another release has to be used."""
    person.create(stored("Hub", "v1"))
    wanted = target(person, "cluster-hubs", kind("Hub", "v1", "v2", scope="Cluster"))
    found = person.find("hubs.example.com", "misplaced", wanted)
    assert len(found) == 2  # the values, and the servers that would run side by side
    for each in found:
        (command,) = each.ways[0]
        asked = person.typed(command.replace("RELEASE", same.removeprefix("--to=")))
        assert "hubs.example.com" not in asked.stdout.partition("WARNINGS")[0], asked.stdout


@pytest.mark.parametrize("way", [0, 1])
def test_values_of_a_version_that_a_crd_does_not_list(person: Person, same: str, way: int) -> None:
    """The version is added and everything migrated, or the values are deleted."""
    name = ("Lamp", "Tube")[way]
    resource = f"{name.lower()}s.example.com"
    person.create(crd(name, "v1"))
    person.up.kubectl("wait", "--for=condition=Established", f"crd/{resource}")
    person.put(key_of(f"{name.lower()}s"), raw(name, "v1beta1"))

    def add(found: Object) -> Object:
        found["spec"]["versions"].append(crd_version("v1beta1", served=False))
        return found

    person.remove(resource, "undecodable", same, way=way, edit=add)


def test_values_that_are_no_objects(person: Person, same: str) -> None:
    person.put(key_of("cogs"), "no object")
    person.remove("cogs.example.com", "unreadable", same)


@pytest.mark.parametrize("way", [0, 1])
def test_values_that_nothing_owns(person: Person, same: str, way: int) -> None:
    """The CRD is created again, or the values are deleted."""
    name = ("Sail", "Mast")[way]
    person.put(key_of(f"{name.lower()}s"), raw(name, "v1"))
    resource = f"{name.lower()}s.example.com"
    found = person.find(resource, "unowned", same)
    if way == 1:
        return person.remove(resource, "unowned", same, way=1)
    person.create(crd("Unrelated", "v1"))
    file = person.directory / "sails.yaml"
    file.write_text((person.directory / "created.yaml").read_text().replace("Unrelated", "Sail"))
    file.write_text(file.read_text().replace("unrelateds", "sails"))
    (command,) = found[0].ways[0]
    assert person.typed(command.replace("FILE", str(file))).returncode == 0
    person.up.kubectl("wait", "--for=condition=Established", f"crd/{resource}")
    assert not [each for each in person.blockers(same) if each.resource == resource]
    return None


def test_a_kind_that_changes_from_a_crd_to_a_built_in_one(person: Person) -> None:
    person.create(crd("Gizmo", "v1"))
    person.up.kubectl("wait", "--for=condition=Established", "crd/gizmos.example.com")
    person.create(stored("Gizmo", "v1"))
    wanted = target(person, "gizmos", kind("Gizmo", "v1"))
    person.remove("gizmos.example.com", "changed-owner", wanted)
    assert not [each for each in person.blockers(wanted) if each.resource == "gizmos.example.com"]


def test_a_crd_that_is_not_served(person: Person, same: str) -> None:
    """Its names are taken; `kubectl describe` shows that, and it gets other names."""
    person.create(crd("Oar", "v1"))
    person.up.kubectl("wait", "--for=condition=Established", "crd/oars.example.com")
    second = crd("Paddle", "v1")
    second["spec"]["names"]["kind"] = "Oar"
    person.create(second)
    person.put(key_of("paddles"), raw("Paddle", "v1"))

    def rename(found: Object) -> Object:
        names = found["spec"]["names"]
        names |= {"kind": "Paddle", "listKind": "PaddleList", "singular": "paddle"}
        return found

    person.remove("paddles.example.com", "not-served", same, edit=rename)


@pytest.mark.parametrize("way", [0, 1])
def test_objects_that_are_older_than_their_crd(person: Person, same: str, way: int) -> None:
    """Unneeded objects are deleted; the others are created again."""
    name = ("Jib", "Keel")[way]
    resource = f"{name.lower()}s.example.com"
    person.put(key_of(f"{name.lower()}s"), raw(name, "v1"))
    person.put(key_of(f"{name.lower()}s", "two"), raw(name, "v1", name="two"))
    person.create(crd(name, "v1"))
    person.up.kubectl("wait", "--for=condition=Established", f"crd/{resource}")
    (found,) = person.find(resource, "recreated", same, among="warnings")
    reading, correcting = found.ways[way]
    shown = person.typed(reading)
    assert shown.returncode == 0, shown.stderr
    file = person.directory / "saved.yaml"
    file.write_text(shown.stdout)
    names = ("one", "two")
    assert all(each in shown.stdout for each in names)
    for each in names if way == 0 else [""]:
        line = correcting.replace("NAMESPACE", "default").replace("NAME", each)
        done = person.typed(line.replace("FILE", str(file)))
        assert done.returncode == 0, f"{line}: {done.stderr}"
    assert not person.find(resource, "recreated", same, among="warnings")
    left = person.up.kubectl("get", resource, "--output=name").splitlines()
    assert len(left) == (0, 2)[way]


def test_a_migration_that_failed(person: Person, same: str) -> None:
    """The cause that it names is fixed; then another migration succeeds, and supersedes it."""
    gears = "gears.example.com"
    person.put(key_of("gears", "bad"), "no object")
    flags = ("--kubeconfig", str(person.kubeconfig))
    failed = person.run(*RESTOW, "migrate", gears, "--force", *flags)
    assert failed.returncode == 3, failed.stdout
    (found,) = person.find(gears, "failed-migration", same, among="warnings")
    assert "default/bad" in found.what
    person.remove(gears, "unreadable", same)
    person.remove(gears, "failed-migration", same, among="warnings")
    assert not [each for each in person.blockers(same) if each.resource == gears]


@pytest.mark.parametrize("way", [0, 1])
def test_a_conversion_webhook_that_does_not_answer(
    person: Person, same: str, way: int, tmp_path: Path
) -> None:
    """Its backend is started, or the CRD stops using it."""
    name = ("Ship", "Raft")[way]
    resource = f"{name.lower()}s.example.com"
    with WebhookThread(tmp_path) as webhook:
        person.create(crd(name, "v1", "v2", conversion=webhook.conversion))
        person.up.kubectl("wait", "--for=condition=Established", f"crd/{resource}")
        person.create({**stored(name, "v1"), "spec": {"color": "red"}})
        webhook.stop()

        def without(found: Object) -> Object:
            found["spec"]["conversion"] = {"strategy": "None"}
            return found

        if way == 1:
            return person.remove(resource, "conversion", same, way=1, edit=without)
        assert person.find(resource, "conversion", same)
        webhook.restart()
        wait_for(
            lambda: not person.find(resource, "conversion", same),
            "the webhook is used again",
            log=lambda: person.up.output,
        )
        person.up.kubectl("delete", f"crd/{resource}")
    return None


def test_a_kind_that_the_target_does_not_have(person: Person) -> None:
    person.create(stored("Cam", "v1"))
    person.remove("cams.example.com", "vanishing", target(person, "no-cams", without="Cam"))


def test_a_server_that_does_not_report(person: Person, same: str) -> None:
    """Restarted with the gate on it reports; stopped, its entries are removed."""
    server = join(person, *GATE_OFF)
    try:
        (found,) = person.find(None, "unreported-writer", same)
        end(server)
        assert not person.find(None, "unreported-writer", same)
        gates = re.search(r"--feature-gates \S+=true", found.advice)
        assert gates is not None, found.advice
        server = join(person, *gates[0].split())
        assert not person.find(None, "unreported-writer", same)
    finally:
        end(server)


def join(person: Person, *words: str) -> subprocess.Popen[bytes]:
    """One more server on the store of the cluster."""
    own = person.directory / "own"
    keys = person.directory / "keys.yaml"
    command = (
        *(*RESTOW, "serve", f"--data-dir={person.up.data_dir}", "--port=0"),
        *(f"--kubeconfig={own}", f"--encryption-provider-config={keys}"),
        *(f"--release={person.directory / 'base.yaml'}", *words),
    )
    server = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert server.stdout is not None
    assert server.stdout.readline().startswith(b"ready: ")
    return server


def end(server: subprocess.Popen[bytes]) -> None:
    if server.poll() is None:
        server.send_signal(signal.SIGTERM)
    server.wait(WAIT_SECONDS_MAX)
    assert server.stdout is not None
    server.stdout.close()


def test_an_api_server_that_is_not_restow(person: Person, same: str) -> None:
    """Once it is stopped, its lease can be deleted; before that the API refuses."""
    lease: Object = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": FOREIGN,
            "namespace": "kube-system",
            "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"},
        },
        "spec": {"holderIdentity": f"{FOREIGN}_1", "leaseDurationSeconds": 3600},
    }
    person.put(f"/registry/leases/kube-system/{FOREIGN}", lease)
    person.remove(None, "unreported-writer", same, way=1)


def test_a_migration_under_way(person: Person) -> None:
    """A wait for it ends it, whether controllers run or not."""
    person.create(
        {
            "apiVersion": "migration.k8s.io/v1alpha1",
            "kind": "StorageVersionMigration",
            "metadata": {"name": "gears"},
            "spec": {"resource": {"group": "example.com", "version": "v1", "resource": "gears"}},
        }
    )
    wanted = target(person, "gear-v2", kind("Gear", "v2", "v1"))
    person.remove("gears.example.com", "migrating", wanted)


def test_encryption_keys(person: Person, same: str, keys_file: Path) -> None:
    """Of the target, and one that is removed from the configuration."""
    vaults = "vaults.example.com"
    person.create(stored("Vault", "v1"))
    (unknown,) = person.find(vaults, "unknown", same)
    assert "--encryption-provider-config FILE" in unknown.advice
    theirs = configure_keys(person.directory / "theirs.yaml", "aesgcm:k2")
    given = f"--encryption-provider-config={theirs}"
    assert not person.find(vaults, "unknown", same, given)

    (unreadable,) = person.find(vaults, "key-unreadable", same, given)
    assert unreadable.advice.startswith("add aesgcm:k1")
    configure_keys(theirs, "aesgcm:k2", "aesgcm:k1")
    assert not person.find(vaults, "key-unreadable", same, given)

    # The alternative: all servers write with a key that the target has, and everything is migrated.
    configure_keys(theirs, "aesgcm:k2")
    drop = ("--drop-key=aesgcm:k1", f"--data-dir={person.up.data_dir}")
    person.remove(vaults, "unknown", *drop)
    assert "put another key first" in person.find(vaults, "key-written", *drop)[0].advice
    configure_keys(keys_file, "aesgcm:k2", "aesgcm:k1")
    wait_for(
        lambda: not person.find(vaults, "key-written", *drop),
        "the servers write with the other key",
        log=lambda: person.up.output,
    )
    assert person.find(vaults, "key-found", *drop)
    person.remove(vaults, "key-stored", *drop, way=1)
    assert not person.find(vaults, "key-found", *drop)
    assert not person.find(vaults, "key-unreadable", same, given)

    (unheard,) = person.find(None, "key-unknown", "--drop-key=k7", drop[1])
    known = re.search(r"known keys: ([^,]*)", unheard.advice)
    assert known is not None
    assert not person.find(None, "key-unknown", f"--drop-key={known[1]}", drop[1])


def test_a_key_that_one_server_would_write_with(person: Person) -> None:
    """Another key is put first in that server's file, which is reloaded while it runs."""
    vaults = "vaults.example.com"
    others = ("aesgcm:k2", "aesgcm:k1")
    own = configure_keys(person.directory / "one.yaml", "aesgcm:k3", *others)
    server = join(person, f"--encryption-provider-config={own}")
    try:
        drop = ("--drop-key=aesgcm:k3", f"--data-dir={person.up.data_dir}")
        (found,) = person.find(vaults, "key-preferred", *drop)
        assert "put another key first in the encryption configuration of" in found.advice
        configure_keys(own, *others, "aesgcm:k3")
        wait_for(
            lambda: not person.find(vaults, "key-preferred", *drop),
            "the server would write with another key",
            log=lambda: person.up.output,
        )
        assert not person.find(vaults, "key-written", *drop)
    finally:
        end(server)


def test_values_encrypted_with_a_key_that_servers_lack(person: Person, same: str) -> None:
    person.put(key_of("vaults", "two"), "k8s:enc:aesgcm:v1:k9:sealed")
    person.remove("vaults.example.com", "unreadable", same, way=1)


def test_a_rolling_upgrade_under_way(person: Person, same: str) -> None:
    """It is rolled back; the servers agree again."""
    upgrade(person, target(person, "gear-v2", kind("Gear", "v2", "v1")), "--pause-after=1")
    person.remove("gears.example.com", "disagreement", same, way=1)


def test_a_kind_that_comes_with_an_upgrade_and_goes_with_the_rollback(person: Person) -> None:
    """Without objects the rollback succeeds; with objects it names them, and succeeds without
    them."""
    base, wanted = releases(person), target(person, "more", kind("Extra", "v1"))
    upgrade(person, wanted)
    upgrade(person, "--rollback")
    assert releases(person) == base
    upgrade(person, wanted)
    person.create(stored("Extra", "v1"))
    back = f"--to={base[0]}"
    assert person.up.run("upgrade", "--rollback", "--yes").returncode == 3
    person.remove("extras.example.com", "vanishing", back)
    upgrade(person, "--rollback")
    assert releases(person) == base


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """A user of a cluster with release x."""
    directory = tmp_path_factory.mktemp("steps")
    words = ("--port=0", "--servers=2", "--release=x", "--no-controllers")
    with Up(directory / "d", *words) as up:
        yield Person(up.ready(), directory)


def releases(person: Person) -> list[str]:
    return [each["release"] for each in person.up.state()["servers"]]


def upgrade(person: Person, *words: str) -> None:
    done = person.up.run("upgrade", *words, "--yes")
    assert done.returncode == 0, done.stderr


def test_a_server_that_is_not_ready(steps: Person) -> None:
    """No step starts while it is down, unless it is named; when it is ready, steps continue."""
    pid = steps.up.pause("server-1")
    try:
        wait_for(
            lambda: "server-1: not ready" in steps.up.output,
            "the paused server is not ready",
            log=lambda: steps.up.output,
        )
        words = ("--to=x+1", "--server=0")
        refused = steps.up.run("upgrade", *words, "--yes")
        assert refused.returncode == 3, refused.stdout
        flag = re.search(r"repeat the command with (--ignore-not-ready 1)", refused.stderr)
        assert flag is not None, refused.stderr
        upgrade(steps, *words, *flag[1].split())
        far = ("upgrade", "--to=x+3", "--server=0", "--yes", *flag[1].split())
        writes = "server 1 is not ready, and writes example.com/v1 when it is"
        refused = steps.up.run(*far)
        assert writes in refused.stderr, refused.stderr
        assert "remedy: bring server 1 back" in refused.stderr
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_for(
        lambda: steps.up.run("upgrade", "--to=x+1", "--yes").returncode == 0,
        "the upgrade goes on",
        log=lambda: steps.up.output,
    )
    assert releases(steps) == ["x+1"] * 2
    assert writes not in steps.up.run(*far).stderr


def test_an_upgrade_that_writes_another_version_can_be_rolled_back(steps: Person) -> None:
    """With objects; and every server responds the same in the middle of it."""
    steps.create(stored("Widget", "v1"))
    upgrade(steps, "--to=x+2", "--pause-after=1")
    assert_every_server_answers_alike(steps, "--to=x")
    upgrade(steps, "--to=x+2")
    upgrade(steps, "--rollback")
    assert releases(steps) == ["x+1"] * 2


def assert_every_server_answers_alike(person: Person, wanted: str) -> None:
    """Eight requests through the front port, and one to each server."""

    def ask(context: str) -> str:
        answer = person.preflight(wanted, f"--context={context}")
        # The response and its commands contain the server that sent it.
        answer.pop("cluster")
        return str(answer).replace(f" --context {context}", "")

    with ThreadPoolExecutor(max_workers=2) as pool:
        answers = set(pool.map(ask, (*["restow"] * 8, "restow-0", "restow-1")))
    assert len(answers) == 1, "\n".join(sorted(answers))


def test_no_single_step_leads_to_the_target(steps: Person) -> None:
    """Each advice names the next release, until there are no blockers."""
    widgets = "widgets.example.com"
    steps.remove(widgets, "undecodable", "--to=x")
    upgrade(steps, "--to=x")
    steps.remove(widgets, "no-way-back", "--to=x+3")
    assert releases(steps) == ["x+1"] * 2
    steps.remove(widgets, "undecodable", "--to=x+3")
    assert releases(steps) == ["x+2"] * 2
    assert steps.preflight("--to=x+3")["safe"]
