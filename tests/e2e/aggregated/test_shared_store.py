"""An aggregated server on the main servers' store, as clients of the main server see it."""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from restow.aio import Runtime
from restow.apimachinery.names import GroupVersionKind, GroupVersionResource
from restow.apimachinery.version_hash import storage_version_hash
from restow.client import ApiClient, EventType, read_kubeconfig
from tests.e2e.aggregated.stage import (
    EVE_TOKEN,
    GROUP,
    ask,
    endpoints,
    entries,
    is_available,
    kinds_file,
    part,
    parts_path,
    until,
)
from tests.e2e.api.kubectl import Kubectl, binaries
from tests.support.aggregated_process import AggregatedProcess
from tests.support.certificates import make_certificate
from tests.support.server_process import ServerProcess


@pytest.fixture(scope="module")
def aggregated(
    main: ServerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AggregatedProcess]:
    directory = tmp_path_factory.mktemp("behind")
    kinds = kinds_file(directory, "v1")
    with AggregatedProcess(directory / "one", main=main, kinds=kinds, store=main.store) as server:
        until(lambda: is_available(main))
        yield server


def test_objects_through_the_main_server(
    main: ServerProcess, aggregated: AggregatedProcess
) -> None:
    """Objects are created, read in another version, changed, refused and deleted through it."""
    assert aggregated.component == "aggregated-parts-example-com"
    code, made = ask(main, "POST", parts_path(), part("a", 3))
    assert (code, made["spec"]) == (201, {"size": 3, "colour": "grey"})
    code, old = ask(main, "GET", parts_path(version="v1beta1", name="a"))
    assert (code, old["apiVersion"]) == (200, f"{GROUP}/v1beta1")
    code, changed = ask(main, "PUT", parts_path(name="a"), {**made, "spec": {"size": 4}})
    assert (code, changed["spec"]["size"]) == (200, 4)
    assert ask(main, "POST", parts_path(), part("b", -1))[0] == 422
    assert ask(main, "DELETE", parts_path(name="a"))[0] == 200
    assert ask(main, "GET", parts_path(name="a"))[0] == 404


def test_watches_pass_through(main: ServerProcess, aggregated: AggregatedProcess) -> None:
    """A watch through the main server gets a new object while both streams stay open."""

    async def seen() -> str:
        config = read_kubeconfig([main.kubeconfig])
        resource = GroupVersionResource(GROUP, "v1", "parts")
        async with ApiClient.connect(config, runtime=Runtime.system()) as client:
            page = await client.list_page(resource, namespace="default")
            async with client.watch(
                resource, resource_version=page.resource_version, namespace="default"
            ) as events:
                await client.create(resource, part("watched"), namespace="default")
                async for event in events:
                    if event.type is EventType.ADDED:
                        return event.key.name
        raise AssertionError("the watch has ended")

    assert asyncio.run(seen()) == "watched"


def test_kubectl_finds_the_kind(
    main: ServerProcess, aggregated: AggregatedProcess, tmp_path: Path
) -> None:
    """For kubectl, discovery and OpenAPI of both servers are merged, with the columns of the
    kind."""
    kubectl = Kubectl.found(binaries()[0], main, tmp_path / "home")
    assert ask(main, "POST", parts_path(), part("shown", 7))[0] == 201
    named = until(lambda: kubectl.run("api-resources", "--api-group", GROUP).partition("parts")[2])
    assert "pt" in named
    assert kubectl.run("get", f"parts.{GROUP}", "shown").split()[:4] == [
        "NAME",
        "SIZE",
        "shown",
        "7",
    ]


def test_discovery_has_the_hash_of_its_storage_version(
    main: ServerProcess, aggregated: AggregatedProcess
) -> None:
    """KEP-35: an aggregated server sets the storage version hash, and the main servers pass it
    on."""
    code, found = ask(main, "GET", f"/apis/{GROUP}/v1")
    hashes = {each["name"]: each.get("storageVersionHash") for each in found["resources"]}
    assert code == 200
    assert hashes["parts"] == storage_version_hash(GroupVersionKind(GROUP, "v1", "Part"))


def test_it_participates_in_coordination(
    main: ServerProcess, aggregated: AggregatedProcess
) -> None:
    """Its entry is in the main servers' StorageVersion, its lease names its component, and it
    gets no requests for resources of the main servers."""
    [(server_id, version)] = entries(main).items()
    assert version == f"{GROUP}/v1"
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    code, lease = ask(main, "GET", f"{leases}/{server_id}")
    labels = lease["metadata"]["labels"]
    assert (code, labels["apiserver.kubernetes.io/identity"]) == (200, aggregated.component)
    assert ask(main, "DELETE", f"{leases}/{server_id}")[0] == 403
    _, found = ask(main, "GET", "/api/v1/namespaces/default/endpoints/kubernetes")
    ports = {port["port"] for subset in found["subsets"] for port in subset["ports"]}
    assert ports == {main.port}
    assert endpoints(main, aggregated.component) == {aggregated.port}


def test_namespaces_are_the_main_servers(
    main: ServerProcess, aggregated: AggregatedProcess
) -> None:
    """Objects cannot be created in a missing namespace, and are deleted with theirs."""
    place = f"/apis/{GROUP}/v1/namespaces/passing/parts"
    code, refused = ask(main, "POST", place, part("a"))
    assert (code, refused["message"]) == (404, 'namespaces "passing" not found')
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "passing"}}
    assert ask(main, "POST", "/api/v1/namespaces", namespace)[0] == 201
    assert ask(main, "POST", place, part("a"))[0] == 201
    assert ask(main, "DELETE", "/api/v1/namespaces/passing")[0] == 200
    until(lambda: ask(main, "GET", f"{place}/a")[0] == 404)


def test_direct_clients_are_the_main_servers_users(
    main: ServerProcess, aggregated: AggregatedProcess
) -> None:
    """Main servers review its clients' tokens and permissions; proxy headers of clients are
    ignored."""
    direct = ServerProcess(aggregated.directory)
    direct.url, direct.token = aggregated.url, main.token
    direct._trust((aggregated.pki_dir / "ca.crt").read_text())
    assert direct.get(parts_path())[0] == 200
    assert direct.get(parts_path(), token="nobody")[0] == 401
    code, text = direct.get(parts_path(), token=EVE_TOKEN)
    assert (code, 'User \\"eve\\" cannot list' in text) == (403, True)
    claimed = {"X-Remote-User": "mallory", "X-Remote-Group": "system:masters"}
    code, text = direct.request("GET", parts_path(), token="", headers=claimed)
    assert (code, "system:anonymous" in text) == (403, True)
    assert direct.get("/readyz", token="")[0] == 200


def test_request_header_settings_are_reloaded(
    main: ServerProcess, aggregated: AggregatedProcess, tmp_path: Path
) -> None:
    """A running server accepts a proxy whose CA and name are added to the main servers'
    ConfigMap, and still accepts the main server; when they are removed, it refuses the proxy."""
    files = make_certificate(tmp_path, name="second-proxy")
    claimed = {"X-Remote-User": "jane", "X-Remote-Group": "system:masters"}

    def is_accepted() -> bool:
        context = ssl.create_default_context(cafile=str(aggregated.pki_dir / "ca.crt"))
        context.load_cert_chain(files.cert_file, files.key_file)
        asker = http.client.HTTPSConnection(
            "127.0.0.1", aggregated.port, timeout=10, context=context
        )
        try:
            asker.request("GET", parts_path(), headers=claimed)
            return asker.getresponse().status == 200
        except OSError:
            return False  # the server ignores its certificate
        finally:
            asker.close()

    path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
    assert not is_accepted()
    _, trust = ask(main, "GET", path)
    names = [*json.loads(trust["data"]["requestheader-allowed-names"]), "second-proxy"]
    trust["data"]["requestheader-allowed-names"] = json.dumps(names)
    assert ask(main, "PUT", path, trust)[0] == 200
    assert not is_accepted(), "a name is not enough"
    _, trust = ask(main, "GET", path)
    trust["data"]["requestheader-client-ca-file"] += files.ca_file.read_text()
    assert ask(main, "PUT", path, trust)[0] == 200
    until(is_accepted)
    assert ask(main, "GET", parts_path())[0] == 200
    assert ask(main, "DELETE", path)[0] == 200
    until(lambda: not is_accepted())
    assert ask(main, "GET", parts_path())[0] == 200


def test_stop_and_start(main: ServerProcess, aggregated: AggregatedProcess, tmp_path: Path) -> None:
    """A second server of the component shares the work and leaves no entry when it stops; the
    objects are there after the last one has stopped and started."""
    assert ask(main, "POST", parts_path(), part("kept"))[0] == 201
    second = aggregated.sibling(tmp_path / "two")
    with second:
        assert endpoints(main, aggregated.component) == {aggregated.port, second.port}
        assert len(entries(main)) == 2
        assert second.stop() == 0
    assert endpoints(main, aggregated.component) == {aggregated.port}
    assert len(entries(main)) == 1
    assert aggregated.stop() == 0
    assert entries(main) == {}
    code, service = ask(main, "GET", f"/apis/apiregistration.k8s.io/v1/apiservices/v1.{GROUP}")
    assert (code, service["spec"]["service"]["name"]) == (200, aggregated.component)
    assert ask(main, "GET", parts_path())[0] == 503
    aggregated.start()
    until(lambda: is_available(main))
    code, text = main.get(parts_path(name="kept"))
    assert (code, json.loads(text)["metadata"]["name"]) == (200, "kept")
