"""The options of `restow serve`: releases, certificates, tokens, logs, health and metrics."""

from __future__ import annotations

import http.client
import json
import re
import ssl
import stat
from pathlib import Path
from typing import Any

from restow.kinds import releases
from tests.e2e.api.conftest import EVE_TOKEN
from tests.support.certificates import make_certificate
from tests.support.server_process import ServerProcess

RELEASES = Path(releases.__file__).with_name("releases")


def names(server: ServerProcess, path: str) -> list[str]:
    code, answer = server.get(path)
    assert code == 200, answer
    return [each["name"] for each in json.loads(answer)["resources"] if "/" not in each["name"]]


def test_releases(tmp_path: Path) -> None:
    """Each of the four shipped releases reads the objects of the one before, after they are
    rewritten."""
    for release, served, stored in (
        ("x", ["v1"], "v1"),
        ("x+1", ["v1", "v2"], "v1"),
        ("x+2", ["v1", "v2"], "v2"),
        ("x+3", ["v2"], "v2"),
    ):
        file = RELEASES / f"{release}.yaml"
        with ServerProcess(tmp_path / "d", arguments=["--release", str(file)]) as server:
            groups = json.loads(server.get("/apis/example.com")[1])
            assert {each["version"] for each in groups["versions"]} == set(served)
            if release == "x":
                make_widgets(server)
            for version in served:
                found = widgets(server, version)
                assert [item["spec"]["size"] for item in found] == [0, 1, 2]
                assert {item["apiVersion"] for item in found} == {f"example.com/{version}"}
            if release == "x+2":
                # The next release cannot read v1: rewrite all objects unchanged.
                for item in widgets(server, stored):
                    rewrite(server, item, stored)
            assert server.stop() == 0


def widgets(server: ServerProcess, version: str) -> list[dict[str, Any]]:
    code, answer = server.get(f"/apis/example.com/{version}/widgets")
    assert code == 200, answer
    found: list[dict[str, Any]] = json.loads(answer)["items"]
    return found


def make_widgets(server: ServerProcess) -> None:
    for size in range(3):
        body = {"metadata": {"name": f"w{size}"}, "spec": {"size": size}}
        path = "/apis/example.com/v1/namespaces/default/widgets"
        code, answer = server.request("POST", path, body)
        assert code == 201, answer


def rewrite(server: ServerProcess, item: dict[str, Any], version: str) -> None:
    """Sends an update that changes only the version in which the object is stored."""
    path = f"/apis/example.com/{version}/namespaces/default/widgets/{item['metadata']['name']}"
    before = item["metadata"]["resourceVersion"]
    for has_changed in (True, False):
        code, answer = server.request("PUT", path, item | {"apiVersion": f"example.com/{version}"})
        assert code == 200, answer
        item = json.loads(answer)
        now = item["metadata"]["resourceVersion"]
        assert (now != before) is has_changed
        before = now


def test_kubernetes_release(tmp_path: Path) -> None:
    """A Kubernetes release serves the groups and versions that it had."""
    file = str(RELEASES / "kubernetes-1.24.yaml")
    with ServerProcess(tmp_path / "d", store="memory:", arguments=["--release", file]) as server:
        assert "cronjobs" in names(server, "/apis/batch/v1beta1")
        assert "poddisruptionbudgets" in names(server, "/apis/policy/v1beta1")
        assert {"configmaps", "namespaces"} <= set(names(server, "/api/v1"))


def test_tokens(server: ServerProcess) -> None:
    """A token of the given file is a user with groups; other tokens and none get 401 and 403."""
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    code, answer = server.request("POST", path, {}, token=EVE_TOKEN)
    user = json.loads(answer)["status"]["userInfo"]
    assert (code, user["username"], user["uid"]) == (201, "eve", "1001")
    assert user["groups"] == ["readers", "writers", "system:authenticated"]
    assert server.get("/api/v1/secrets", token=EVE_TOKEN)[0] == 403
    assert server.get("/api/v1/secrets", token="made-up")[0] == 401
    assert server.get("/api/v1/secrets", token="")[0] in (401, 403)
    assert server.get("/healthz", token="")[0] == 200


def test_secret_files(server: ServerProcess) -> None:
    """Secret files are readable by their owner only."""
    for path in (server.kubeconfig, server.pki_dir, *server.pki_dir.glob("*.key")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_given_certificates(tmp_path: Path) -> None:
    """Given TLS files are used, and clients with a certificate of the given CA are
    authenticated."""
    serving = make_certificate(tmp_path / "serving", name="api.example.com")
    clients = make_certificate(tmp_path / "clients", name="mallory")
    arguments = ["--tls-cert-file", serving.cert_file, "--tls-private-key-file", serving.key_file]
    arguments += ["--client-ca-file", clients.ca_file]
    server = ServerProcess(tmp_path / "d", store="memory:", arguments=[*map(str, arguments)])
    server.launch()
    server.wait_ready()
    try:
        context = ssl.create_default_context(cafile=str(serving.ca_file))
        context.load_cert_chain(clients.cert_file, clients.key_file)
        connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context)
        connection.request("GET", "/api/v1/namespaces/default/configmaps")
        answer = connection.getresponse()
        said = json.loads(answer.read())
        connection.close()
        assert (answer.status, 'User "mallory" cannot' in said["message"]) == (403, True)
    finally:
        server.kill()


def test_json_logs(tmp_path: Path) -> None:
    """With --log-format json each line of the log is an object with time, level and message."""
    arguments = ["--log-format", "json", "-v", "4"]
    with ServerProcess(tmp_path / "d", arguments=arguments) as server:
        server.get("/api/v1/namespaces")
        assert server.stop() == 0
    lines: list[dict[str, Any]] = [
        json.loads(line) for line in server.log_file.read_text().splitlines()
    ]
    assert lines
    assert all({"ts", "level", "logger", "msg"} <= line.keys() for line in lines)
    assert any("serving" in line["msg"] and server.url in line["msg"] for line in lines)
    assert lines[-1]["msg"] == "stopped"


def test_health(server: ServerProcess) -> None:
    """Health endpoints are public, and list their checks on request."""
    for probe in ("healthz", "livez", "readyz"):
        assert server.get(f"/{probe}", token="") == (200, "ok")
        code, text = server.get(f"/{probe}?verbose")
        lines = text.splitlines()
        assert code == 200
        assert lines[-1] == f"{probe} check passed"
        assert "[+]ping ok" in lines
        assert all(line.startswith("[+]") for line in lines[:-1])
    assert "[+]shutdown ok" in server.get("/readyz?verbose")[1].splitlines()
    assert server.get("/livez/ping") == (200, "ok")
    assert server.get("/livez/nothing")[0] == 404


def test_metrics(server: ServerProcess) -> None:
    """Metrics count requests by verb and resource, and need authorization."""
    server.get("/api/v1/namespaces/default/configmaps/none")
    code, text = server.get("/metrics")
    assert code == 200
    counted = [
        line
        for line in text.splitlines()
        if line.startswith("apiserver_request_total{") and 'resource="configmaps"' in line
    ]
    assert any('verb="get"' in line and 'code="404"' in line for line in counted), counted
    assert "apiserver_request_duration_seconds_bucket" in text
    [requests] = re.findall(r"^restow_listener_requests_total (\S+)$", text, re.MULTILINE)
    assert float(requests) >= 1, "the one before this; this one is not answered yet"
    assert "# TYPE restow_listener_requests_total counter\n" in text
    assert "# TYPE restow_listener_connections_open gauge\n" in text
    assert server.get("/metrics", token=EVE_TOKEN)[0] == 403
