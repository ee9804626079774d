"""Two plug-ins of one name must have the same keys, or the second one is not used."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest

from restow.aio import Runtime
from restow.apimachinery.names import GroupResource
from restow.apiserver.kms_probes import StoredProbes
from restow.encryption.configuration import ConfigurationRefused
from restow.encryption.key_reload import ReloadedKeys
from restow.encryption.kms_probes import PROBES_PREFIX, probe_key
from restow.storage.errors import Unavailable
from restow.storage.interface import Absent, Delete, Put, Span, Transaction
from restow.storage.memory import MemoryStorage
from tests.support.kms_plugin import KmsPlugin
from tests.unit.encryption.keys_for_tests import IDENTITY, document, kms, local

SECRET: Final = GroupResource("", "secrets")
PLAIN: Final = document(("secrets", [local("aesgcm", "a"), IDENTITY]))


class Machines:
    """Servers with a plug-in each, and the store that they share."""

    def __init__(self, directory: Path, undo: AsyncExitStack) -> None:
        self.storage = MemoryStorage()
        self._directory = directory
        self._undo = undo

    async def plugin(self, name: str, secret: bytes = b"one vault") -> KmsPlugin:
        found = KmsPlugin(str(self._directory / name), Runtime.simulated(name), secret=secret)
        return await self._undo.enter_async_context(found)

    async def keys(self, plugin: KmsPlugin, *, data: bytes | None = None) -> ReloadedKeys:
        """The keys of a server, not loaded yet."""
        path = Path(f"{plugin.socket}.json")
        path.touch(mode=0o600)
        path.write_bytes(data or document(("secrets", [kms(plugin.endpoint), IDENTITY])))
        found = ReloadedKeys(str(path), Runtime.system(), probes=StoredProbes(self.storage))
        self._undo.push_async_callback(found.close)
        return found

    async def probes(self) -> list[str]:
        return [item.key for item in (await self.storage.range(Span.of_prefix("/"))).items]


@pytest.fixture
async def machines(tmp_path: Path) -> AsyncIterator[Machines]:
    async with AsyncExitStack() as undo:
        yield Machines(tmp_path, undo)


async def test_plugins_with_one_vault(machines: Machines) -> None:
    """The first server stores a probe, the second decrypts it, and both write."""
    for name in ("a", "b"):
        keys = await machines.keys(await machines.plugin(name))
        await keys.load()
        assert keys.write_key(SECRET) == "kms:vault:key-1"
        assert keys.problem() == ""
    assert await machines.probes() == [probe_key("vault", "key-1")]
    assert probe_key("vault", "key-1").startswith(PROBES_PREFIX)


async def test_plugins_with_different_vaults(machines: Machines) -> None:
    """A server whose plug-in cannot decrypt the probe does not start, and says what to do."""
    await (await machines.keys(await machines.plugin("a"))).load()
    other = await machines.keys(await machines.plugin("b", b"another vault"))
    with pytest.raises(ConfigurationRefused) as caught:
        await other.load()
    text = str(caught.value)
    assert "the KMS plug-in vault does not have the keys that other servers have" in text
    assert "same keys in both plug-ins, or give this one another name" in text
    assert "--key kms:vault:key-1" in text
    # The plug-in is right, and nothing is stored under the key: an operator deletes the probe.
    key = probe_key("vault", "key-1")
    await machines.storage.commit(Transaction((), (Delete(key),)))
    await other.load()
    assert other.write_key(SECRET) == "kms:vault:key-1"


async def test_a_damaged_probe(machines: Machines) -> None:
    """A value that is no probe is not accepted, whichever client wrote it."""
    key = probe_key("vault", "key-1")
    await machines.storage.commit(Transaction((Absent(key),), (Put(key, b"something"),)))
    with pytest.raises(ConfigurationRefused, match="it is damaged"):
        await (await machines.keys(await machines.plugin("a"))).load()


async def test_a_reload_with_another_vault(machines: Machines) -> None:
    """A running server rejects a file that names such a plug-in, until it is fixed."""
    await (await machines.keys(await machines.plugin("a"))).load()
    wrong = await machines.plugin("b", b"another vault")
    keys = await machines.keys(wrong, data=PLAIN)
    await keys.load()
    Path(keys.path).write_bytes(document(("secrets", [kms(wrong.endpoint), IDENTITY])))
    assert not await keys.check_once()
    assert "does not have the keys that other servers have" in keys.last_error
    assert keys.write_key(SECRET).startswith("aesgcm:a:")


async def test_a_rotation_to_another_vault(machines: Machines) -> None:
    """If a plug-in switches to a key that others do not have, the server does not follow."""
    plugins = [await machines.plugin("a"), await machines.plugin("b")]
    servers = [await machines.keys(plugin) for plugin in plugins]
    for server in servers:
        await server.load()
    plugins[0]._secret = b"a vault of its own"
    for plugin, server in zip(plugins, servers, strict=True):
        plugin.key_id = "key-2"
        await server.keyring.plugins["vault"].poll()
    assert servers[0].write_key(SECRET) == "kms:vault:key-2"
    assert servers[1].write_key(SECRET) == "kms:vault:key-1"
    assert servers[1].writable(SECRET) == ("kms:vault:key-1", "")
    assert "does not have the keys that other servers have" in servers[1].problem()
    plugins[0]._secret, plugins[1]._secret = b"one vault", b"a vault of its own"
    await servers[1].keyring.plugins["vault"].poll()
    assert servers[1].write_key(SECRET) == "kms:vault:key-2"
    assert servers[1].problem() == ""


async def test_a_plugin_that_does_not_answer_is_waited_for(machines: Machines) -> None:
    """Without a response nothing is proven: the server starts, and writes after the probe
    succeeds."""
    await (await machines.keys(await machines.plugin("a"))).load()
    plugin = await machines.plugin("b")
    plugin.decrypts_badly = "fail"
    keys = await machines.keys(plugin)
    await keys.load()
    assert "cannot check yet whether the other servers have the same keys" in keys.problem()
    with pytest.raises(Unavailable):
        keys.write_key(SECRET)
    plugin.decrypts_badly = "well"
    await keys.keyring.plugins["vault"].poll()
    assert keys.write_key(SECRET) == "kms:vault:key-1"
    assert keys.problem() == ""
