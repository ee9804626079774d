"""The keys of a server follow its configuration file."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from restow.aio import Runtime, SimulatedClock
from restow.apimachinery.names import GroupResource
from restow.encryption.configuration import ConfigurationRefused
from restow.encryption.interface import Keys
from restow.encryption.key_reload import (
    CONTENT_SECONDS,
    RECHECK_SECONDS,
    UNSETTLED_MAX,
    ReloadedKeys,
    _read,
)
from restow.storage.errors import CannotOpen, OpenRefused, Unavailable
from restow.storage.interface import Key
from tests.support.kms_plugin import KmsPlugin
from tests.unit.encryption.keys_for_tests import IDENTITY, document, kms, local

SECRET: Final = GroupResource("", "secrets")
KEY: Final = Key("/registry/secrets/default/one")
OLD: Final = document(("secrets", [local("aesgcm", "a"), IDENTITY]))
BOTH: Final = document(("secrets", [local("aesgcm", "b", "a"), IDENTITY]))
NEW: Final = document(("secrets", [local("aesgcm", "b"), IDENTITY]))


class Changing:
    """A file, the keys that follow it, and the clock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = SimulatedClock()
        self.notified = 0
        self.write(OLD)
        self.keys = ReloadedKeys(str(path), Runtime.simulated(1, clock=self.clock))
        self.keys.changed.subscribe(self._notify)

    def _notify(self) -> None:
        self.notified += 1

    def write(self, data: bytes) -> None:
        """Replace the file atomically, as an operator should."""
        beside = self.path.with_suffix(".new")
        beside.write_bytes(data)
        beside.chmod(0o600)
        beside.rename(self.path)

    def name(self) -> str:
        return self.keys.write_key(SECRET).split(":")[1]


@pytest.fixture
async def changing(tmp_path: Path) -> AsyncIterator[Changing]:
    changing = Changing(tmp_path / "encryption.json")
    await changing.keys.load()
    yield changing
    await changing.keys.close()


async def test_a_change_is_applied(changing: Changing) -> None:
    """Another key in the file is in effect after the next check, and the change is emitted once."""
    sealed = changing.keys.seal(changing.keys.write_key(SECRET), KEY, b"v")
    digest = changing.keys.digest
    changing.write(BOTH)
    assert await changing.keys.check_once()
    assert not await changing.keys.check_once()
    assert changing.name() == "b"
    assert changing.notified == 1
    assert changing.keys.digest != digest
    assert changing.keys.open(KEY, sealed).value == b"v"
    assert changing.keys.reloads == {"success": 1, "failure": 0}


async def test_following(changing: Changing) -> None:
    """A following task checks every second."""
    async with changing.keys._runtime.tasks("test") as tasks:
        tasks.spawn("follow", changing.keys.follow())
        taken = asyncio.Event()
        changing.keys.changed.subscribe(taken.set)
        changing.write(BOTH)
        await changing.clock.advance(1.5)
        await taken.wait()
        assert changing.name() == "b"


@pytest.mark.parametrize("bad", [b"", b"{", OLD.replace(b"aesgcm", b"rot13"), None])
async def test_a_bad_file_is_refused(
    bad: bytes | None, changing: Changing, caplog: pytest.LogCaptureFixture
) -> None:
    """The previous configuration stays, the reason is logged once, and the next valid file is
    used."""
    if bad is None:
        changing.path.unlink()
    else:
        changing.write(bad)
    for _ in range(3):
        assert not await changing.keys.check_once()
        await changing.clock.advance(CONTENT_SECONDS)
    assert changing.name() == "a"
    assert changing.keys.last_error
    assert caplog.text.count("is rejected") == 1
    assert changing.keys.reloads["failure"] == 1
    changing.write(BOTH)
    assert await changing.keys.check_once()
    assert changing.keys.last_error == ""


async def test_reverting_an_invalid_file(changing: Changing) -> None:
    """An invalid file that is reverted leaves no error."""
    changing.write(b"{")
    await changing.keys.check_once()
    changing.write(OLD)
    assert not await changing.keys.check_once()
    assert changing.keys.last_error == ""
    assert changing.notified == 0


async def test_a_check_may_refuse(changing: Changing, caplog: pytest.LogCaptureFixture) -> None:
    """A key that is still needed is not dropped; the file is retried until it may be."""
    asked: list[Keys] = []

    async def check(keyring: Keys) -> None:
        asked.append(keyring)
        if len(asked) < 3:
            raise OpenRefused("key a is still in use")

    changing.keys.connect(check=check)
    changing.write(NEW)
    for _ in range(2):
        assert not await changing.keys.check_once()
        assert not await changing.keys.check_once()
        assert changing.keys.last_error == "key a is still in use"
        await changing.clock.advance(RECHECK_SECONDS)
    assert changing.name() == "a"
    assert caplog.text.count("is rejected") == 1
    assert await changing.keys.check_once()
    assert [ring.write_key(SECRET) for ring in asked] == [changing.keys.write_key(SECRET)] * 3
    assert changing.name() == "b"


async def test_the_same_age_and_another_content(changing: Changing) -> None:
    """A file that was changed in place within one tick of the clock is detected all the same."""
    status = changing.path.stat()
    changing.path.write_bytes(OLD.replace(b'"a"', b'"q"'))
    os.utime(changing.path, ns=(status.st_atime_ns, status.st_mtime_ns))
    changing.keys._seen = (
        (now := changing.path.stat()).st_mtime_ns,
        now.st_ino,
        now.st_size,
        now.st_ctime_ns,
    )
    assert not await changing.keys.check_once()
    await changing.clock.advance(CONTENT_SECONDS)
    assert await changing.keys.check_once()
    assert changing.name() == "q"


async def test_loading_an_invalid_file(tmp_path: Path) -> None:
    """The start has no previous configuration: the error names the file and the reason."""
    path = tmp_path / "missing.yaml"
    keys = ReloadedKeys(str(path), Runtime.system())
    with pytest.raises(ConfigurationRefused, match=r"missing\.yaml: cannot be read"):
        await keys.load()
    path.write_bytes(b"kind: Secret")
    path.chmod(0o600)
    with pytest.raises(ConfigurationRefused, match=r"missing\.yaml: the file must have apiVersion"):
        await keys.load()


async def test_a_file_that_all_may_read(
    changing: Changing, caplog: pytest.LogCaptureFixture
) -> None:
    """It is rejected at the start; later the keys stay, and the log says it once."""
    changing.write(BOTH)
    for mode, problem in ((0o644, "holds secrets"), (0o660, "other users can write it")):
        changing.path.chmod(mode)
        again = ReloadedKeys(str(changing.path), Runtime.system())
        with pytest.raises(ConfigurationRefused, match=f"{problem}.*: chmod 600 {changing.path}"):
            await again.load()
        caplog.clear()
        for _ in range(2):
            assert not await changing.keys.check_once()
        [said] = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
        assert f"mode {mode:o}" in said
        assert f"mode {mode:o}" in changing.keys.last_error
        assert changing.name() == "a"
    changing.path.chmod(0o600)
    assert await changing.keys.check_once()
    assert changing.keys.last_error == ""
    assert changing.name() == "b"


async def test_plugins_stay_with_their_seeds(tmp_path: Path) -> None:
    """A plug-in in both files keeps its seeds; one that the new file lacks is closed."""
    path = tmp_path / "encryption.json"
    async with KmsPlugin(str(tmp_path / "kms.sock"), Runtime.simulated(1)) as service:
        path.touch(mode=0o600)
        path.write_bytes(document(("secrets", [kms(service.endpoint), IDENTITY])))
        keys = ReloadedKeys(str(path), Runtime.system())
        await keys.load()
        assert keys.write_key(SECRET) == "kms:vault:key-1"
        assert keys.problem() == ""
        plugin = keys.keyring.plugins["vault"]
        path.write_bytes(document(("secrets", [local("aesgcm", "a"), kms(service.endpoint)])))
        assert await keys.check_once()
        assert keys.keyring.plugins["vault"] is plugin
        assert service.calls["Encrypt"] == 1
        notified: list[str] = []
        keys.changed.subscribe(lambda: notified.append(keys.writable(SECRET)[1]))
        service.key_id = "key-2"
        await plugin.poll()
        assert notified == ["kms:vault:key-2"]
        path.write_bytes(OLD)
        assert await keys.check_once()
        assert not keys.keyring.plugins
        # Until the others know the change, this server may have to write as before.
        sealed = keys.seal("kms:vault:key-2", KEY, b"v")
        assert keys.open(KEY, sealed) == (b"v", "kms:vault:key-2")
        keys.settled()
        with pytest.raises(CannotOpen, match="kms v2 key vault, which this server does not have"):
            keys.open(KEY, sealed)
        with pytest.raises(Unavailable):
            keys.seal("kms:vault:key-2", KEY, b"v")
        await keys.close()


async def test_a_new_plugin_must_answer(tmp_path: Path) -> None:
    """A running server does not switch to an unreachable plug-in; a starting one waits for it."""
    path = tmp_path / "encryption.json"
    service = KmsPlugin(str(tmp_path / "kms.sock"), Runtime.simulated(1))
    path.touch(mode=0o600)
    path.write_bytes(OLD)
    keys = ReloadedKeys(str(path), Runtime.system())
    await keys.load()
    path.write_bytes(document(("secrets", [kms(service.endpoint), local("aesgcm", "a")])))
    assert not await keys.check_once()
    assert "KMS Provider vault" in keys.last_error
    assert keys.write_key(SECRET).startswith("aesgcm:a:")
    await keys.load()
    with pytest.raises(Unavailable):
        keys.write_key(SECRET)
    assert keys.problem().startswith("kms-provider-0: failed to perform status section")
    await keys.close()


async def test_a_plugin_without_its_libraries(
    changing: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server without the extra for KMS rejects the file, names the extra, and keeps running."""
    for name in ("kms", "kms_channel"):
        monkeypatch.delitem(sys.modules, f"restow.encryption.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "grpc", None)
    changing.write(document(("secrets", [kms("unix:///nowhere.sock"), local("aesgcm", "a")])))
    assert not await changing.keys.check_once()
    assert changing.keys.last_error == "KMS needs the extra 'etcd': pip install 'restow[etcd]'"
    assert changing.name() == "a"


async def test_unsettled_changes_are_limited(changing: Changing) -> None:
    """While the others do not know them, the number of changes is limited."""
    for number in range(UNSETTLED_MAX):
        changing.write(BOTH if number % 2 == 0 else OLD)
        assert await changing.keys.check_once()
    changing.write(BOTH)
    assert not await changing.keys.check_once()
    assert "do not know the last" in changing.keys.last_error
    changing.keys.settled()
    await changing.clock.advance(RECHECK_SECONDS)
    assert await changing.keys.check_once()


@pytest.mark.parametrize("is_behind_a_link", [False, True])
async def test_a_pipe_is_no_file(
    is_behind_a_link: bool, changing: Changing, tmp_path: Path
) -> None:
    """A pipe, whose read may never end, is rejected at once, at the start and later."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    changing.path.unlink()
    if is_behind_a_link:
        changing.path.symlink_to(pipe)
    else:
        pipe.rename(changing.path)
    async with asyncio.timeout(30):
        assert not await changing.keys.check_once()
        assert "it is not a regular file" in changing.keys.last_error
        with pytest.raises(ConfigurationRefused, match="it is not a regular file"):
            await ReloadedKeys(str(changing.path), Runtime.system()).load()
    with pytest.raises(ConfigurationRefused, match="it is not a regular file"):
        _read(str(changing.path))
    assert changing.name() == "a"


@pytest.mark.parametrize("path", ["/dev/null", "/dev/zero", "/"])
async def test_other_special_files(path: str) -> None:
    """Nor is a device, or a directory."""
    with pytest.raises(ConfigurationRefused, match="it is not a regular file"):
        await ReloadedKeys(path, Runtime.system()).load()


async def test_a_refusal_is_published_at_once(changing: Changing) -> None:
    """`publish` is called when the file is rejected, and when it is accepted again; not
    otherwise."""
    published: list[str] = []

    async def publish() -> None:
        published.append(changing.keys.last_error)

    changing.keys.connect(publish=publish)
    await changing.keys.check_and_publish()
    changing.write(b"{}")
    for _ in range(2):
        await changing.keys.check_and_publish()
    assert len(published) == 1
    assert published[0]
    changing.write(OLD)
    await changing.keys.check_and_publish()
    assert published[1:] == [""]
