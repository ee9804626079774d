"""Kubeconfig files and the service account of a pod."""

from __future__ import annotations

import base64
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from restow.aio import SimulatedClock
from restow.client import (
    ClientConfig,
    ConfigInvalid,
    ConfigOverrides,
    find_config,
    in_cluster_config,
    load_config,
    read_kubeconfig,
)
from restow.client.credentials import TOKEN_FILE_SECONDS, ClientCredentials
from tests.support.certificates import CertificateFiles, make_certificate

GROUP = "client.authentication.k8s.io"


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


def plugin(**more: Any) -> dict[str, Any]:
    command = {"command": "aws", "apiVersion": f"{GROUP}/v1", "interactiveMode": "Never"}
    return {"exec": command | more}


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
    "exec-command": (document(user={"exec": {"args": []}}), "user 'u': exec: command is not set"),
    "exec-alpha": (
        document(user={"exec": {"command": "/bin/aws", "apiVersion": f"{GROUP}/v1alpha1"}}),
        f"'{GROUP}/v1alpha1' is not supported: .*v1beta1.* write .* again: aws eks update-kube",
    ),
    "exec-version": (
        document(user={"exec": {"command": "aws"}}),
        "user 'u': exec: apiVersion is not set: it must be client.authentication.k8s.io/v1 or ",
    ),
    "exec-mode": (
        document(user=plugin(interactiveMode="Sometimes")),
        "interactiveMode must be one of Never, IfAvailable, Always",
    ),
    "exec-env": (document(user=plugin(env=["A=B"])), "env must be a list of name and value"),
    "exec-env-name": (document(user=plugin(env=[{"name": "A=B"}])), "env: 'A=B' is not a variable"),
    "exec-args": (document(user=plugin(args=[1])), "args must be a list of strings"),
    "provider": (
        document(user={"auth-provider": {"name": "gcp"}}),
        r"user 'u': auth-provider 'gcp' is not supported.*: use gke-gcloud-auth-plugin",
    ),
    "provider-unknown": (
        document(user={"auth-provider": {"name": "x"}}),
        "use the exec plugin of your provider, or a token",
    ),
    "both-users": (
        document(user={"username": "a", "token": "b"}),
        "'u': username and token exclude each other",
    ),
    "proxy-scheme": (
        document(cluster={"proxy-url": "ftp://p"}),
        r"cluster 'c': proxy-url: unsupported scheme 'ftp': must be http, https or socks5",
    ),
    "proxy": (
        document(cluster={"proxy-url": "http://u:secret@:80"}),
        r"cluster 'c': proxy-url is not a proxy address: it must be [^@]*$",
    ),
    "twice": (
        document() | {"users": [{"name": "u"}, {"name": "u"}]},
        "user 'u' is listed more than once",
    ),
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
def test_invalid_kubeconfigs_are_rejected(tmp_path: Path, case: str) -> None:
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


def test_user_and_password(tmp_path: Path) -> None:
    """Basic authentication is sent as configured."""
    path = write(tmp_path, document(user={"username": "anna", "password": "p:w"}))
    credentials = ClientCredentials(read_kubeconfig([path]), SimulatedClock())
    assert credentials.headers() == [("Authorization", f"Basic {data('anna:p:w')}")]


def test_a_plugin_runs_only_without_another_credential(tmp_path: Path) -> None:
    """As in client-go, a token or a certificate has precedence over the plugin."""
    assert read_kubeconfig([write(tmp_path, document(user=plugin()))]).plugin is not None
    both = document(user=plugin() | {"token": "t"})
    assert read_kubeconfig([write(tmp_path, both)]).plugin is None
    overrides = ConfigOverrides(token="t")
    path = write(tmp_path, document(user=plugin()))
    assert read_kubeconfig([path], overrides=overrides).plugin is None


def test_several_files(tmp_path: Path) -> None:
    """The first entry of a name and the first current-context win as a whole, each relative path
    belongs to its own file, and files that do not exist or repeat are ignored."""
    first, second = tmp_path / "a", tmp_path / "b"
    for directory in (first, second):
        directory.mkdir()
        (directory / "token").write_text(directory.name)
    write(
        first,
        {
            "clusters": [{"name": "c", "cluster": {"server": "https://one"}}],
            "contexts": [{"name": "y", "context": {"cluster": "c", "user": "only-in-b"}}],
        },
    )
    value = document(cluster={"tls-server-name": "n"}, user={"tokenFile": "token"})
    value["users"].append({"name": "only-in-b", "user": {"tokenFile": "token"}})
    write(second, value)
    write(tmp_path, document() | {"current-context": "z"}, "third")
    places = [first / "config", tmp_path / "none", second / "config", second / "config"]
    environ = {"KUBECONFIG": ":".join(map(str, ["", *places, tmp_path / "third"]))}
    config = load_config(environ, home=tmp_path)
    assert (config.server, config.server_name) == ("https://one", None)
    assert config.token_file == second / "token"
    other = load_config(environ, home=tmp_path, context="y")
    assert (other.server, other.token_file) == ("https://one", second / "token")


OVERRIDES: dict[str, tuple[ConfigOverrides, dict[str, Any]]] = {
    "server": (
        ConfigOverrides(server="https://o:1"),
        {"server": "https://o:1", "server_name": None, "token": "t"},
    ),
    "server-name": (ConfigOverrides(tls_server_name="m"), {"server_name": "m"}),
    "token": (ConfigOverrides(token="flag"), {"token": "flag", "token_file": None}),
    "insecure": (
        ConfigOverrides(insecure_skip_tls_verify=True),
        {"is_verified": False, "ca_pem": None},
    ),
    "authority": (ConfigOverrides(certificate_authority=Path("ca")), {"ca_pem": "from a file"}),
    "cluster": (ConfigOverrides(cluster="d"), {"server": "https://d", "token": "t"}),
    "user": (ConfigOverrides(user="v"), {"server": "https://h:6443", "token": "v"}),
    "as": (
        ConfigOverrides(as_user="eve", as_groups=("a", "b"), as_uid="7"),
        {
            "impersonation": (
                ("Impersonate-User", "eve"),
                ("Impersonate-Group", "a"),
                ("Impersonate-Group", "b"),
                ("Impersonate-Uid", "7"),
            )
        },
    ),
}


@pytest.mark.parametrize("case", OVERRIDES)
def test_flags_have_precedence(tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each flag replaces its field, and what belonged to the replaced value."""
    (tmp_path / "ca").write_text("from a file")
    (tmp_path / "token").write_text("t")
    value = document(
        cluster={"certificate-authority-data": data("x"), "tls-server-name": "n"},
        user={"token": "t", "tokenFile": "token"},
    )
    value["clusters"].append({"name": "d", "cluster": {"server": "https://d"}})
    value["users"].append({"name": "v", "user": {"token": "v"}})
    path = write(tmp_path, value)
    monkeypatch.chdir(tmp_path)
    overrides, expected = OVERRIDES[case]
    config = read_kubeconfig([path], overrides=overrides)
    assert {name: getattr(config, name) for name in expected} == expected


def test_flags_alone(tmp_path: Path) -> None:
    """With a server flag, no kubeconfig is needed, and no other credential is used, not even in a
    pod; a kubeconfig that is named must exist."""
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    overrides = ConfigOverrides(server="https://h", token="t")
    config = find_config(environ, home=tmp_path, overrides=overrides)
    assert (config.server, config.token, config.token_file) == ("https://h", "t", None)
    with pytest.raises(ConfigInvalid, match="no such file"):
        read_kubeconfig([tmp_path / "none"], overrides=overrides)
    with pytest.raises(ConfigInvalid, match="no user 'x'; available: none"):
        find_config({}, home=tmp_path, overrides=ConfigOverrides(server="https://h", user="x"))


def test_an_empty_kubeconfig_in_a_pod(tmp_path: Path) -> None:
    """A kubeconfig that configures nothing does not hide the service account of a pod."""
    environ = {
        "KUBECONFIG": str(write(tmp_path, "")),
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "KUBERNETES_SERVICE_PORT": "443",
    }
    with pytest.raises(ConfigInvalid, match="service account"):
        find_config(environ, home=tmp_path)


def handshake(client: ssl.SSLContext, server: ssl.SSLContext) -> str:
    """The cipher suite of a handshake in memory. Raises SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for end in ends * 3:
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
    negotiated = ends[0].cipher()
    assert negotiated is not None
    return negotiated[0]


def test_only_authenticated_encryption_is_offered(tmp_path: Path) -> None:
    """A server of TLS 1.2 that has only suites with CBC gets no connection; one with AES-GCM
    does."""
    serving = make_certificate(tmp_path, name="localhost")
    config = ClientConfig(server="https://localhost", ca_pem=serving.ca_file.read_text())
    client = config.ssl_context()
    assert client is not None
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(serving.cert_file, serving.key_file)
    server.maximum_version = ssl.TLSVersion.TLSv1_2
    server.set_ciphers("ECDHE-ECDSA-AES128-SHA256:ECDHE-ECDSA-AES256-SHA384")
    with pytest.raises(ssl.SSLError):
        handshake(client, server)
    server.set_ciphers("ECDHE-ECDSA-AES128-SHA256:ECDHE-ECDSA-AES128-GCM-SHA256")
    assert handshake(client, server) == "ECDHE-ECDSA-AES128-GCM-SHA256"
