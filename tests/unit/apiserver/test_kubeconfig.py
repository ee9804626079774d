"""The kubeconfig file: usable by kubectl and the Python client, readable by its owner only."""

from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest
import yaml
from kubernetes.client import Configuration
from kubernetes.config import kube_config

from restow.aio import Runtime
from restow.apiserver.kubeconfig import ExtraContext, make_kubeconfig, write_kubeconfig
from restow.apiserver.pki import Pki, ensure_pki


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return ensure_pki(tmp_path_factory.mktemp("data") / "pki", Runtime.system())


def test_the_file_is_for_its_owner(pki: Pki, tmp_path: Path) -> None:
    """It is replaced atomically, with mode 0600 whatever its mode was before."""
    path = tmp_path / "new" / "kubeconfig"
    path.parent.mkdir()
    path.write_text("old")
    path.chmod(0o644)
    write_kubeconfig(path, server_url="https://127.0.0.1:6443", pki=pki)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert yaml.safe_load(path.read_text())["current-context"] == "restow"
    assert [file.name for file in path.parent.iterdir()] == ["kubeconfig"]


def test_both_credentials_are_there(pki: Pki) -> None:
    """The current context has the token; a second one has the certificate; both have the CA."""
    made = make_kubeconfig(
        server_url="https://a:1", pki=pki, extra=[ExtraContext("restow-2", "https://b:2")]
    )
    assert [(entry["name"], entry["cluster"]["server"]) for entry in made["clusters"]] == [
        ("restow", "https://a:1"),
        ("restow-2", "https://b:2"),
    ]
    for entry in made["clusters"]:
        assert (
            base64.b64decode(entry["cluster"]["certificate-authority-data"]) == pki.serving_ca_pem
        )
    users = {entry["name"]: entry["user"] for entry in made["users"]}
    contexts = {entry["name"]: entry["context"] for entry in made["contexts"]}
    assert list(contexts) == ["restow", "restow-certificate", "restow-2"]
    assert users[contexts["restow"]["user"]] == {"token": pki.admin_token}
    certificate = users[contexts["restow-certificate"]["user"]]
    assert base64.b64decode(certificate["client-certificate-data"]) == pki.admin_cert_pem
    assert base64.b64decode(certificate["client-key-data"]) == pki.admin_key_pem
    assert contexts["restow-2"] == {"cluster": "restow-2", "user": "restow-admin"}


def test_names_must_differ(pki: Pki) -> None:
    """Two contexts with the same name would mask each other."""
    with pytest.raises(ValueError, match="same name"):
        make_kubeconfig(server_url="https://a:1", pki=pki, extra=[ExtraContext("restow", "x")])


@pytest.mark.parametrize("context", ["restow", "restow-certificate"])
def test_the_python_client_reads_it(pki: Pki, tmp_path: Path, context: str) -> None:
    """The official client finds the server, its CA and a credential."""
    path = tmp_path / "kubeconfig"
    write_kubeconfig(path, server_url="https://127.0.0.1:6443", pki=pki)
    configuration = Configuration()
    kube_config.load_kube_config(  # type: ignore[no-untyped-call]
        str(path), context=context, client_configuration=configuration, temp_file_path=str(tmp_path)
    )
    assert configuration.host == "https://127.0.0.1:6443"
    assert Path(str(configuration.ssl_ca_cert)).read_bytes() == pki.serving_ca_pem
    if context == "restow":
        assert f"Bearer {pki.admin_token}" in configuration.api_key.values()
    else:
        assert Path(str(configuration.cert_file)).read_bytes() == pki.admin_cert_pem
