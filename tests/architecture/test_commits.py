"""Callers of commit: a short list with reasons, and objects are committed in one place only."""

import ast
from pathlib import Path

SRC = Path(__file__).parents[2] / "src" / "restow"

COMMITTERS = {
    "registry/committer.py": "objects, under the fence of the encoding policy",
    "registry/store.py": "plans of objects, by the committer",
    "storageversion/membership.py": "this server's own key and its lease",
    "storageversion/registrar.py": "reports, as `changes.change` has made them",
    "storageversion/contradictions.py": "states that a scan contradicts, made by `changes`",
    "storageversion/garbage_collector.py": "reports, and keys of servers that are gone",
    "storageversion/unreported.py": "the mark of a server that does not report on StorageStates",
    "storageversion/remote_registration.py": "the own encoder key, and which store this is",
    "storageversion/remote_reports.py": "reports of servers with another store, made by `changes`",
    "storageversion/verification.py": "states, guarded by the epoch and by their own revision",
    "encryption/decrypted_storage.py": "wraps a store and passes commits on to it",
    "controllers/store_lock.py": "keys of our own: the leader lock",
    "controllers/server_addresses.py": "keys of our own: where servers are",
    "apiserver/aggregated_store.py": "keys of our own: a component's keys, and whose a store is",
    "apiserver/kms_probes.py": "keys of our own: what every KMS plug-in of a name must open",
    "apiserver/cluster_keys.py": "a key of our own: which cluster this is",
    "apiserver/ended_sessions.py": "keys of our own: which sessions were ended",
    "apiserver/used_tickets.py": "keys of our own: which tickets were used",
    "cli/store_verbs.py": "what a person asks for by hand",
}


def _calls_commit(file: Path) -> bool:
    tree = ast.parse(file.read_text())
    return any(isinstance(node, ast.Attribute) and node.attr == "commit" for node in ast.walk(tree))


def test_callers_of_commit_are_known() -> None:
    """A new place that writes to the store must be reviewed: does it bypass the fence?"""
    found = {
        str(file.relative_to(SRC))
        for file in SRC.rglob("*.py")
        if file.relative_to(SRC).parts[0] not in ("storage", "testing") and _calls_commit(file)
    }
    assert found == COMMITTERS.keys()


def test_objects_are_committed_in_one_place() -> None:
    """The committer commits only what `_transaction` built, with the policy's guards."""
    tree = ast.parse((SRC / "registry/committer.py").read_text())
    (function,) = [
        each
        for each in ast.walk(tree)
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        and any(
            isinstance(node, ast.Attribute) and node.attr == "commit" for node in ast.walk(each)
        )
        and each.name != "commit"
    ]
    commits = [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "commit"
    ]
    assert commits == ["self._storage.commit(transaction)"]
    assigned = [
        ast.unparse(node)
        for node in ast.walk(function)
        if isinstance(node, ast.Name)
        and node.id == "transaction"
        and isinstance(node.ctx, ast.Store)
    ]
    assert assigned == ["transaction"]
    assert (
        "transaction = _transaction(plan, encoding, sealed, in_background=is_rewrite)"
        in ast.unparse(function)
    )
