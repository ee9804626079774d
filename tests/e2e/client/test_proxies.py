"""Requests of the client through a real proxy on loopback, to a real server with TLS."""

from __future__ import annotations

import asyncio
import base64
import ssl
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from restow.aio import Runtime
from restow.client import (
    ApiClient,
    ClientConfig,
    ConnectionFailed,
    ListOptions,
    read_kubeconfig,
    version_of,
)
from tests.e2e.client.conftest import CONFIG_MAPS, NAMESPACES
from tests.support.certificates import make_certificate
from tests.support.forward_proxy import ForwardProxy
from tests.support.server_process import ServerProcess

SCHEMES = ("http", "https", "socks5")
LARGE = "x" * 300_000


def config_of(
    server: ServerProcess, directory: Path, proxy_url: str, *, is_trusted: bool = True
) -> ClientConfig:
    """The configuration of a kubeconfig with `proxy-url`, and the authority of an https proxy."""
    own = directory / "proxy" / "ca.pem"
    pem = server.ca_pem + (own.read_text() if own.exists() and is_trusted else "")
    document = yaml.safe_load(server.kubeconfig.read_bytes())
    for each in document["clusters"]:
        each["cluster"]["proxy-url"] = proxy_url
        each["cluster"]["certificate-authority-data"] = base64.b64encode(pem.encode()).decode()
    path = directory / "proxied.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document))
    return read_kubeconfig([path], environ={"HTTPS_PROXY": "http://127.0.0.1:1"})


def proxy_of(scheme: str, directory: Path, *, password: str = "") -> ForwardProxy:
    """A proxy; one of https has a certificate of its own authority."""
    context = None
    if scheme == "https":
        made = make_certificate(directory / "proxy", name="proxy")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(made.cert_file, made.key_file)
    return ForwardProxy(Runtime.system(), scheme=scheme, password=password, context=context)


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_requests_and_watches_through_a_proxy(
    client_server: ServerProcess, tmp_path: Path, scheme: str, namespace: str
) -> None:
    """Requests, large objects and watches pass a proxy of each kind, with a password; the proxy
    gets the name of the server, and TLS is verified for that name."""
    async with proxy_of(scheme, tmp_path, password="p@ss/w") as proxy:
        config = config_of(client_server, tmp_path, proxy.url_of("p%40ss%2Fw"))
        config = replace(config, server=f"https://localhost:{client_server.port}")
        async with ApiClient.connect(config, runtime=Runtime.system()) as client:
            page = await client.list_page(CONFIG_MAPS, namespace=namespace)
            async with client.watch(
                CONFIG_MAPS,
                resource_version=page.resource_version,
                namespace=namespace,
                options=ListOptions(field_selector="metadata.name=large"),
            ) as events:
                body = {"metadata": {"name": "large"}, "data": {"x": LARGE}}
                made = await client.create(CONFIG_MAPS, body, namespace=namespace)
                async with asyncio.timeout(20):
                    event = await anext(events)
            assert event.resource_version == version_of(made)
            assert event.object["data"]["x"] == LARGE
            await asyncio.gather(*(client.list_page(NAMESPACES) for _ in range(8)))
        assert set(proxy.requested) == {("localhost", client_server.port)}


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_password_that_is_wrong(
    client_server: ServerProcess, tmp_path: Path, scheme: str
) -> None:
    """A proxy that requires other credentials is named in the error, without the password."""
    async with proxy_of(scheme, tmp_path, password="right") as proxy:
        config = config_of(client_server, tmp_path, proxy.url_of("hunter2"))
        async with ApiClient.connect(config, runtime=Runtime.system()) as client:
            with pytest.raises(ConnectionFailed, match=f"proxy {proxy.url}.* proxy-url") as caught:
                await client.list_page(NAMESPACES)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["http", "socks5"])
async def test_a_proxy_that_refuses(
    client_server: ServerProcess, tmp_path: Path, scheme: str
) -> None:
    """A refused tunnel, and a proxy that does not listen, are errors of the proxy."""
    async with proxy_of(scheme, tmp_path) as proxy:
        proxy.refuses = True
        url = proxy.url
        config = config_of(client_server, tmp_path, url)
        async with ApiClient.connect(config, runtime=Runtime.system()) as client:
            with pytest.raises(ConnectionFailed, match=f"the proxy {url}"):
                await client.list_page(NAMESPACES)
    async with ApiClient.connect(config, runtime=Runtime.system()) as client:
        with pytest.raises(ConnectionFailed, match=f"no connection through the proxy {url}: "):
            await client.list_page(NAMESPACES)


async def test_a_proxy_that_is_not_trusted(client_server: ServerProcess, tmp_path: Path) -> None:
    """The certificate of an https proxy is verified."""
    async with proxy_of("https", tmp_path) as proxy:
        config = config_of(client_server, tmp_path, proxy.url, is_trusted=False)
        async with ApiClient.connect(config, runtime=Runtime.system()) as client:
            with pytest.raises(ConnectionFailed, match=r"through the proxy .*certificate"):
                await client.list_page(NAMESPACES)
    assert proxy.requested == []


@pytest.mark.parametrize("scheme", ["http", "socks5"])
async def test_the_server_is_verified_through_a_proxy(
    client_server: ServerProcess, tmp_path: Path, scheme: str
) -> None:
    """A proxy cannot pass the connection to another server: its certificate is not trusted."""
    ca_pem = make_certificate(tmp_path / "other", name="other").ca_file.read_text()
    async with proxy_of(scheme, tmp_path) as proxy:
        config = replace(config_of(client_server, tmp_path, proxy.url), ca_pem=ca_pem)
        async with ApiClient.connect(config, runtime=Runtime.system()) as client:
            with pytest.raises(ConnectionFailed, match="its certificate is not trusted"):
                await client.list_page(NAMESPACES)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("command", ["status namespaces", "doctor -o json"])
async def test_commands_through_a_proxy(
    client_server: ServerProcess, tmp_path: Path, scheme: str, command: str
) -> None:
    """A command uses `proxy-url` for all its connections, on the event loop of commands: the name
    of the server is known to the proxy only."""
    async with proxy_of(scheme, tmp_path) as proxy:
        config_of(client_server, tmp_path, proxy.url)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "restow", *command.split()),
            *("--kubeconfig", str(tmp_path / "proxied.kubeconfig")),
            *("--server", f"https://cluster.invalid:{client_server.port}"),
            *("--tls-server-name", "localhost"),
            # A user without rights cannot read the addresses of the servers.
            *("--as", "eve", "--as-group", "system:authenticated"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, errors = await asyncio.wait_for(process.communicate(), 60)
    assert errors == b""
    assert process.returncode in {0, 1}, out.decode()
    assert b"cluster.invalid" in out or b"namespaces" in out
    assert b"resolved" not in out
    assert set(proxy.requested) == {("cluster.invalid", client_server.port)}
