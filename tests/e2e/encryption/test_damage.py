"""One encrypted value in the store is damaged: it is reported, and nothing else is affected."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Final

import pytest

from restow.aio import Runtime
from restow.storage.drivers import open_storage
from restow.storage.interface import Key, Put, Transaction
from tests.support.child_process import ProcessFailed
from tests.support.encryption_files import write_encryption_file
from tests.support.server_process import ServerProcess

pytestmark = pytest.mark.area("encryption")

SECRETS: Final = "/api/v1/namespaces/default/secrets"
ROOT: Final = "/registry/secrets/default/"


def damage(store: str, *names: str, root: str = ROOT) -> bytes:
    """Flips a bit in each value; returns the new value of the last one."""

    async def change() -> bytes:
        storage = await open_storage(store, Runtime.system())
        try:
            value = b""
            for name in names:
                item = await storage.get(Key(root + name))
                assert item is not None
                assert item.value.startswith(b"k8s:enc:")
                value = item.value[:-1] + bytes([item.value[-1] ^ 1])
                await storage.commit(Transaction(writes=(Put(item.key, value),)))
            return value
        finally:
            await storage.close()

    return asyncio.run(change())


def stored(store: str, name: str) -> bytes:
    async def read() -> bytes:
        storage = await open_storage(store, Runtime.system())
        try:
            item = await storage.get(Key(ROOT + name))
            assert item is not None
            return item.value
        finally:
            await storage.close()

    return asyncio.run(read())


def test_a_damaged_value_is_reported_and_does_not_stop_a_server(tmp_path: Path) -> None:
    """A server starts, warns of the value with its key in the store, returns an error for it and
    never overwrites it; if no value can be decrypted with a key, that key is considered wrong
    and the start is refused."""
    keys = write_encryption_file(tmp_path / "keys", "aesgcm:a", "identity", resources=("secrets",))
    flags = ("--encryption-provider-config", str(keys))
    with ServerProcess(tmp_path / "a", arguments=flags) as server:
        for name in ("good", "bad"):
            secret = {
                "metadata": {"name": name},
                "data": {"word": base64.b64encode(b"hush").decode()},
            }
            assert server.request("POST", SECRETS, secret)[0] == 201
        server.stop()
        value = damage(server.store, "bad")
        server.start()
        warning = "1 values of secrets are damaged: aesgcm key a opens others, and not these: "
        assert f"{warning}{ROOT}bad" in server.log_file.read_text()
        assert server.get(f"{SECRETS}/good")[0] == 200
        for method, path, body in (
            ("GET", f"{SECRETS}/bad", None),
            ("PUT", f"{SECRETS}/bad", {"metadata": {"name": "bad"}}),
            ("GET", SECRETS, None),
        ):
            status, answer = server.request(method, path, body)
            assert status == 500, answer
            assert "bad" in json.loads(answer)["message"]
        assert stored(server.store, "bad") == value
        server.stop()
        damage(server.store, "good")
        with pytest.raises(ProcessFailed, match="of which it has another secret") as refusal:
            server.start()
        assert f"{ROOT}bad, {ROOT}good" in str(refusal.value)


def test_a_namespace_that_cannot_be_read_is_not_missing(tmp_path: Path) -> None:
    """A create in it gets the real reason, and not that the namespace does not exist, which
    clients would act on."""
    keys = write_encryption_file(
        tmp_path / "keys", "aesgcm:a", "identity", resources=("namespaces",)
    )
    flags = ("--encryption-provider-config", str(keys))
    with ServerProcess(tmp_path / "a", arguments=flags) as server:
        made = server.request("POST", "/api/v1/namespaces", {"metadata": {"name": "dim"}})
        assert made[0] == 201
        server.stop()
        damage(server.store, "dim", root="/registry/namespaces/")
        server.start()
        body = {"metadata": {"name": "one"}}
        status, answer = server.request("POST", "/api/v1/namespaces/dim/configmaps", body)
        assert status == 500, answer
        assert "namespaces cannot be read from the store: dim" in json.loads(answer)["message"]
        status, _ = server.request("POST", "/api/v1/namespaces/none/configmaps", body)
        assert status == 404
