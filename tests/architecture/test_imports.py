"""The import contract: the code satisfies it, and violations are found."""

import configparser
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTRACT = ROOT / ".importlinter"

# A file, a line in it, and the contract that it violates.
BREACHES = {
    "upwards": ("apimachinery/x.py", "import restow.apis", "Layers"),
    "to-a-sibling": ("endpoints/x.py", "import restow.migration", "Layers"),
    "client-to-registry": ("client/x.py", "import restow.registry", "Layers"),
    "client-to-storage": ("client/x.py", "import restow.storage", "Outsiders"),
    "client-to-encryption": ("client/x.py", "import restow.encryption", "Outsiders"),
    "migration-to-storageversion": (
        "migration/x.py",
        "import restow.storageversion",
        "Outsiders",
    ),
    "dashboard-to-storage": ("dashboard/x.py", "import restow.storage", "Outsiders"),
    "testing": ("cli/x.py", "import restow.testing", "No package imports restow.testing"),
    "apsw": ("storage/memory.py", "import apsw", "Only restow.storage.sqlite"),
    "grpc": ("apiserver/x.py", "import grpc.aio", "Only restow.storage.etcd"),
    "httptools": ("endpoints/app.py", "import httptools", "Only restow.httpserver"),
    "wsproto": ("httpserver/x.py", "import wsproto.events", "Only restow.endpoints.websocket"),
    "google": ("storage/memory.py", "import google.protobuf", "Only restow.storage.etcd"),
    "nacl": ("storage/memory.py", "import nacl.secret", "Only restow.encryption"),
    "cryptography": ("cli/x.py", "import cryptography.x509", "Only apimachinery, encryption"),
    "cryptography-in-a-home": (
        "apiserver/x.py",
        "import cryptography.x509",
        "Only apimachinery, encryption",
    ),
    "re2": ("kinds/x.py", "import re2", "Only restow.apimachinery.structural"),
    "jsonschema": ("registry/x.py", "import jsonschema_rs", "Only restow.apimachinery uses json"),
    "yaml": ("client/x.py", "import yaml", "Only restow.apimachinery uses PyYAML"),
    "isal": ("endpoints/x.py", "import isal", "Only restow.request"),
    "prometheus": ("request/x.py", "import prometheus_client", "Only request.metrics"),
    "rich": ("migration/x.py", "import rich.table", "Only restow.cli uses rich"),
    "shtab": ("cli/x.py", "import shtab", "Only restow.cli.completion"),
    "uvloop": ("apiserver/x.py", "import uvloop", "Only restow.cli uses uvloop"),
    "cycle": ("census/b.py", "import restow.census.a", "No cycles"),
    "in-endpoints": (
        "endpoints/representations.py",
        "import restow.endpoints.handlers",
        "Inside endpoints:",
    ),
    "in-handlers": (
        "endpoints/handlers/server.py",
        "import restow.endpoints.handlers.watch",
        "Inside endpoints.handlers:",
    ),
    "in-migration": (
        "migration/migration_objects.py",
        "import restow.migration.trigger",
        "Inside migration:",
    ),
    "in-storageversion": (
        "storageversion/changes.py",
        "import restow.storageversion.registrar",
        "Inside storageversion:",
    ),
    "in-registry": ("registry/resource.py", "import restow.registry.store", "Inside registry:"),
    "in-apimachinery": (
        "apimachinery/codec.py",
        "import restow.apimachinery.body_codec",
        "Inside apimachinery:",
    ),
    "unlisted-inside": ("registry/novelty.py", "", "Inside registry:"),
    "unlisted": ("novelty.py", "", "Layers"),
}

# Libraries in the packages that may use them.
HOMES = {
    "storage/sqlite/driver.py": "import apsw",
    "storage/etcd/driver.py": "import grpc.aio",
    "encryption/kms_channel.py": "import grpc.aio",
    "encryption/kms_messages.py": "import google.protobuf",
    "encryption/providers.py": "import nacl.secret, cryptography.exceptions",
    "httpserver/reader.py": "import httptools",
    "endpoints/websocket/frames.py": "import wsproto.connection",
    "apimachinery/structural/patterns.py": "import re2, jsonschema_rs",
    "apimachinery/message_tables.py": "import google.protobuf",
    "apimachinery/certificates.py": "import cryptography.x509",
    "apimachinery/yaml_codec.py": "import yaml",
    "apiserver/certificates.py": "import cryptography.x509",
    "request/responses.py": "import isal",
    "request/metrics.py": "import prometheus_client",
    "migration/metrics.py": "import prometheus_client",
    "cli/event_loop.py": "import rich.table, uvloop",
    "cli/completion.py": "import shtab",
}


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            Path(sys.executable).with_name("lint-imports"),
            f"--config={CONTRACT}",
            "--no-cache",
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def _layers() -> dict[str, list[str]]:
    """Returns the names in each package with layers: `restow` first, then inner packages."""
    contracts = configparser.ConfigParser()
    contracts.read(CONTRACT)
    return {
        each["containers"].strip(): re.findall(r"\w+", each["layers"])
        for each in contracts.values()
        if each.get("type") == "layers"
    }


@pytest.fixture
def small_restow(tmp_path: Path) -> Path:
    """Returns a package with all layers and their libraries, without a violation."""
    package = tmp_path / "restow"
    packages = {tmp_path.joinpath(*each.split(".")): names for each, names in _layers().items()}
    homes = {package / path: line for path, line in HOMES.items()}
    folders = {
        *packages,
        *(package / name for name in packages[package]),
        *(p.parent for p in homes),
    }
    for folder in folders - {package / "__main__"}:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").touch()
    for folder, names in packages.items():
        for name in names:
            if folder / name not in folders:
                (folder / f"{name}.py").touch()
    (package / "__main__.py").write_text("import restow.cli\n")
    for path, line in homes.items():
        path.write_text(line + "\n")
    (package / "cli" / "main.py").write_text("import restow.storage.sqlite.driver\n")
    (package / "census" / "a.py").write_text("import restow.census.b\n")
    (package / "census" / "b.py").touch()
    (package / "testing" / "x.py").write_text("import restow.cli\nimport restow.storage\n")
    return tmp_path


def test_the_code_keeps_the_contract() -> None:
    """No module imports what its layer may not."""
    done = _lint(ROOT / "src")
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_package_has_its_layer() -> None:
    """The contract names the packages that exist, and no others."""
    packages = {path.parent.name for path in (ROOT / "src" / "restow").glob("*/__init__.py")}
    assert {*packages, "__main__"} == set(_layers()["restow"])


def test_homes_are_allowed(small_restow: Path) -> None:
    """A library may be used in its package, and through that package from above."""
    done = _lint(small_restow)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("breach", BREACHES)
def test_a_breach_is_found(small_restow: Path, breach: str) -> None:
    """Each rule of the contract fails when it is violated."""
    path, line, contract = BREACHES[breach]
    (small_restow / "restow" / path).write_text(line + "\n")
    done = _lint(small_restow)
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(rf"^{re.escape(contract)}.* BROKEN\b", done.stdout, flags=re.MULTILINE)
