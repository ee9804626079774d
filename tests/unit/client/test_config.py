"""Kubeconfig files and the service account of a pod."""

from __future__ import annotations

import base64
import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml

from restow.aio import SimulatedClock
from restow.client import (
    ClientConfig,
    ConfigInvalid,
    find_config,
    in_cluster_config,
    load_config,
    read_kubeconfig,
)
from restow.client.credentials import TOKEN_FILE_SECONDS, ClientCredentials
from tests.support.certificates import CertificateFiles, make_certificate


def data(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def document(
    *, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    return {
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://h:6443"} | (cluster or {})}],
        "users": [{"name": "u", "user": {} if user is None else user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"} | more}],
        "current-context": "x",
    }


def write(directory: Path, value: object, name: str = "config") -> Path:
    path = directory / name
    path.write_text(value if isinstance(value, str) else yaml.safe_dump(value))
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return make_certificate(tmp_path_factory.mktemp("certificates"), name="anna")


def test_all_fields(tmp_path: Path, files: CertificateFiles) -> None:
    """Every supported field is read, from data and from files relative to the kubeconfig."""
    (tmp_path / "token").write_text("from-a-file\n")
    config = read_kubeconfig(
        [
            write(
                tmp_path,
                document(
                    cluster={
                        "server": "https://127.0.0.1:6443/base/",
                        "certificate-authority": str(files.ca_file),
                        "tls-server-name": "localhost",
                    },
                    user={
                        "tokenFile": "token",
                        "client-certificate-data": data(files.cert_file.read_text()),
                        "client-key": str(files.key_file),
                        "as": "eve",
                        "as-groups": ["a", "b"],
                        "as-uid": "7",
                        "as-user-extra": {"acme.com/Scope": ["s"]},
                    },
                    namespace="n",
                ),
            )
        ]
    )
    assert (config.host, config.port, config.base_path) == ("127.0.0.1", 6443, "/base")
    assert (config.namespace, config.server_name) == ("n", "localhost")
    assert config.token_file == tmp_path / "token"
    assert config.impersonation == (
        ("Impersonate-User", "eve"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Extra-acme.com%2Fscope", "s"),
    )
    context = config.ssl_context()
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert len(context.get_ca_certs()) == 1


def test_secrets_are_not_shown(files: CertificateFiles) -> None:
    """A printed configuration shows neither token nor key."""
    config = ClientConfig(
        server="https://h",
        token="hush",
        client_cert_pem=files.cert_file.read_text(),
        client_key_pem=files.key_file.read_text(),
    )
    assert "hush" not in repr(config)
    assert "PRIVATE" not in repr(config)


def test_insecure(tmp_path: Path) -> None:
    """Without verification any certificate is accepted, if the file says so."""
    path = write(tmp_path, document(cluster={"insecure-skip-tls-verify": True}))
    context = read_kubeconfig([path]).ssl_context()
    assert context is not None
    assert context.verify_mode is ssl.CERT_NONE


def test_files_are_merged(tmp_path: Path) -> None:
    """The first entry of a name, and the first current context, win."""
    one = write(tmp_path, {"users": [{"name": "u", "user": {"token": "first"}}]}, "one")
    two = write(tmp_path, document(user={"token": "second"}), "two")
    three = write(
        tmp_path,
        document(cluster={"server": "https://other"}) | {"current-context": "y"},
        "three",
    )
    environ = {"KUBECONFIG": f"{tmp_path / 'missing'}:{one}:{two}::{three}"}
    config = load_config(environ, home=tmp_path)
    assert (config.token, config.server) == ("first", "https://h:6443")


def test_a_named_context(tmp_path: Path) -> None:
    """A named context overrides the current one."""
    value = document() | {"current-context": "gone"}
    assert read_kubeconfig([write(tmp_path, value)], context="x").server == "https://h:6443"


def test_where_a_configuration_is_found(tmp_path: Path) -> None:
    """$KUBECONFIG, then the home directory, then the service account; otherwise an error."""
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(ConfigInvalid, match=r"no such file; set KUBECONFIG"):
        find_config({}, home=tmp_path)
    with pytest.raises(ConfigInvalid, match="service account"):
        find_config(environ, home=tmp_path)
    (tmp_path / ".kube").mkdir()
    write(tmp_path / ".kube", document())
    assert find_config(environ, home=tmp_path).server == "https://h:6443"


REFUSED = {
    "exec": (document(user={"exec": {"command": "aws"}}), r"user 'u': exec: credential plugins"),
    "provider": (document(user={"auth-provider": {"name": "gcp"}}), "'u': auth-provider: "),
    "basic": (document(user={"username": "a", "password": "b"}), "'u': username: basic"),
    "proxy": (document(cluster={"proxy-url": "http://p"}), r"cluster 'c': proxy-url: proxies"),
    "no-server": (document(cluster={"server": ""}), "cluster 'c': server is not set"),
    "bad-server": (document(cluster={"server": "h:6443"}), "is not an address such as"),
    "bad-port": (document(cluster={"server": "https://h:x"}), "is not an address such as"),
    "newline": (document(cluster={"server": "https://h/\n"}), "is not an address such as"),
    "user-in-url": (document(cluster={"server": "https://a:b@h"}), "is not an address such as"),
    "number": (document(user={"token": 7}), "user 'u': token must be a string"),
    "flag": (document(cluster={"insecure-skip-tls-verify": "yes"}), "must be true or false"),
    "both": (
        document(
            cluster={"insecure-skip-tls-verify": True, "certificate-authority-data": data("x")}
        ),
        "exclude each other",
    ),
    "base64": (
        document(cluster={"certificate-authority-data": "%%"}),
        "cluster 'c': certificate-authority-data is not base64",
    ),
    "missing-file": (
        document(cluster={"certificate-authority": "nothing.pem"}),
        "certificate-authority .*/nothing.pem cannot be read: No such file",
    ),
    "half": (document(user={"client-certificate-data": data("x")}), "must be set together"),
    "groups": (
        document(user={"as-groups": ["a"]}),
        "as-groups, as-uid and as-user-extra require as",
    ),
    "header": (document(user={"token": "a\r\nX: y"}), "token has characters"),
    "plain-http": (
        document(cluster={"server": "http://h"}, user={"token": "t"}),
        "plain http, which must not carry credentials",
    ),
    "no-context": (document() | {"current-context": ""}, "current-context is not set"),
    "unknown-context": (document() | {"current-context": "z"}, "no context 'z'; available: x"),
    "unknown-user": (document(user={}) | {"users": []}, "no user 'u'; available: none"),
    "users": (document() | {"users": {"u": {}}}, "users must be a list of mappings"),
    "kind": ({"kind": "Pod"}, "not a kubeconfig: kind must be Config"),
    "yaml": ("a: b: c", "config: not YAML"),
    "list": ("[]", "not a kubeconfig"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_understood_is_refused(tmp_path: Path, case: str) -> None:
    """Each error names the file, the entry and the field, and says what to do."""
    value, text = REFUSED[case]
    with pytest.raises(ConfigInvalid, match=text) as caught:
        read_kubeconfig([write(tmp_path, value)])
    assert str(tmp_path) in str(caught.value)


def test_certificates_that_are_none(files: CertificateFiles) -> None:
    """A CA, or a pair of certificate and key, that is not PEM is rejected by name."""
    with pytest.raises(ConfigInvalid, match="certificate-authority is not a certificate"):
        ClientConfig(server="https://h", ca_pem="x").ssl_context()
    pair = files.cert_file.read_text(), files.ca_file.read_text()
    config = ClientConfig(server="https://h", client_cert_pem=pair[0], client_key_pem=pair[1])
    with pytest.raises(ConfigInvalid, match="not a pair in PEM form"):
        config.ssl_context()


def test_a_pod(tmp_path: Path) -> None:
    """In a pod: the address from the environment, the rest from the service account's files."""
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_text("pem")
    config = in_cluster_config(environ, directory=tmp_path)
    assert (config.server, config.host, config.namespace) == (
        "https://[fd00::1]:443",
        "fd00::1",
        "default",
    )
    (tmp_path / "namespace").write_text("n\n")
    assert in_cluster_config(environ, directory=tmp_path).namespace == "n"
    (tmp_path / "ca.crt").unlink()
    with pytest.raises(ConfigInvalid, match=r"ca\.crt .* cannot be read"):
        in_cluster_config(environ, directory=tmp_path)
    with pytest.raises(ConfigInvalid, match="not in a cluster"):
        in_cluster_config({}, directory=tmp_path)


async def test_a_token_file_is_read_again(tmp_path: Path) -> None:
    """A rotated token is used after a minute, at once after a 401; a missing file is tolerated."""
    clock = SimulatedClock()
    path = tmp_path / "token"
    credentials = ClientCredentials(ClientConfig(server="https://h", token_file=path), clock)
    with pytest.raises(ConfigInvalid, match="tokenFile"):
        credentials.headers()
    path.write_text("one\n")
    assert credentials.headers() == [("Authorization", "Bearer one")]
    path.write_text("two")
    assert credentials.headers() == [("Authorization", "Bearer one")]
    await clock.advance(TOKEN_FILE_SECONDS)
    assert credentials.headers() == [("Authorization", "Bearer two")]
    path.write_text("three")
    credentials.refused()
    assert credentials.headers() == [("Authorization", "Bearer three")]
    path.unlink()
    credentials.refused()
    assert credentials.headers() == [("Authorization", "Bearer three")]
