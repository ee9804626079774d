"""The table of known attacks: threats, vulnerabilities of other servers, and their tests.

    python -m tests.architecture.security_map       # regenerates docs/reference/security-map.md

A row names tests, or the reason why the attack does not apply; some have both. Only the rows and
the page generated from them. The limits are in `test_security_map`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.architecture.test_security_map import LIMITS

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "security-map.md"

_API: Final = "tests/conformance/api"
_SECURITY: Final = "tests/conformance/security"
_PROXY: Final = "tests/conformance/aggregation/proxy/test_proxy_cves.py"
_LISTENER: Final = "tests/unit/httpserver"
_MIGRATOR: Final = "tests/unit/migration/migrator"
_COORDINATION: Final = "tests/unit/storageversion"
_AGREEMENT: Final = f"{_COORDINATION}/test_agreement.py"
_CUSTOM: Final = f"{_COORDINATION}/test_custom_resources.py"
_MEMBERS: Final = f"{_COORDINATION}/test_custom_members.py"
_OIDC: Final = "tests/unit/authentication/test_oidc.py"

_HEAD: Final = """\
# Known attacks and their tests

<!-- Made by `python -m tests.architecture.security_map`. Change that module, not this page. -->

Use this page in a security review. It lists known attacks on servers of this kind, with the tests
that perform them, or the reason why an attack does not apply. A test compares this page with its
source, and checks that the tests exist.

`tests/conformance/security/test_matrix.py` tests the permissions of every kind, verb and
subresource.

## Attacks on storage version coordination
"""


class Row(NamedTuple):
    """An attack, and the tests that show that it fails."""

    attack: str
    tests: tuple[str, ...] = ()
    why_not: str = ""
    """Why the attack, or a part of it, does not apply."""


THREATS: Final[dict[str, Row]] = {
    "S1": Row(
        "a user with many rights writes the status of a StorageVersion: a forged entry, a forged"
        " common version, a removed entry",
        (
            f"{_SECURITY}/test_storage_threats.py::test_s1_s6_forged_and_absurd_reports",
            f"{_SECURITY}/test_storage_threats.py::test_s1_s4_s10_no_ordinary_role_reaches_them",
            f"{_API}/test_server_owned.py::test_the_status_of_a_storage_version_is_server_owned",
            "tests/e2e/storageversion/test_ownership.py::test_clients_cannot_write_server_owned_records",
        ),
    ),
    "S2": Row(
        "the identity lease of another server is deleted or edited",
        (
            f"{_API}/test_server_owned.py::test_identity_leases_are_server_owned",
            "tests/e2e/storageversion/test_ownership.py::test_clients_cannot_write_server_owned_records",
            f"{_MEMBERS}::test_a_new_identity_registers_custom_resources_too",
            f"{_AGREEMENT}::test_a_paused_server_writes_nothing_in_the_old_version",
        ),
    ),
    "S3": Row(
        "a lease that looks like a server's, with a time far in the future, blocks agreement",
        (
            f"{_SECURITY}/test_storage_threats.py::test_s3_no_lease_stands_for_a_server",
            f"{_COORDINATION}/test_garbage_collector.py::test_a_new_collector_waits_the_whole_lease",
        ),
        "no decision depends on the times of a lease: servers are detected by keys that only"
        " servers write, and by monotonic clocks",
    ),
    "S4": Row(
        "thousands of migrations, or one of a resource that the user may not read",
        (
            f"{_SECURITY}/test_storage_threats.py::test_s1_s4_s10_no_ordinary_role_reaches_them",
            f"{_MIGRATOR}/test_controller.py::test_one_after_another",
            f"{_MIGRATOR}/test_controller.py::test_a_bounded_number",
            "tests/e2e/controllers/test_rights.py::test_the_permissions_of_the_manifests_suffice",
        ),
        "the status of a migration names objects that could not be rewritten, so reading it needs a"
        " separate permission, which no default role grants",
    ),
    "S5": Row(
        "the position of a running migration is edited, so that objects are skipped",
        (
            f"{_API}/test_rewrite.py::test_tokens_are_for_one_migration_to_one_target",
            f"{_MIGRATOR}/test_forged.py::test_a_forged_position",
            f"{_MIGRATOR}/test_forged.py::test_a_forged_proof",
            f"{_API}/test_verification.py::test_a_forged_success_is_no_evidence",
            f"{_API}/test_verification.py::test_owned_annotations_cannot_be_forged",
            f"{_MIGRATOR}/test_position.py::test_another_purpose",
            f"{_API}/test_list.py::test_invalid_continue_tokens",
        ),
    ),
    "S6": Row(
        "invalid versions and server names are reported: a megabyte, control characters, `../`",
        (
            f"{_SECURITY}/test_storage_threats.py::test_s1_s6_forged_and_absurd_reports",
            "tests/unit/kinds/test_storage_versions.py::test_bad_entries",
        ),
    ),
    "S7": Row(
        "a CRD changes its storage version in a loop",
        (
            f"{_SECURITY}/test_storage_threats.py::test_s7_a_definition_that_flips",
            "tests/conformance/custom/test_versions.py::test_storage_flips_under_objects",
        ),
    ),
    "S8": Row(
        "a write with a slow body continues across a change of the storage version",
        (
            f"{_API}/test_fence.py::test_every_write_is_fenced",
            f"{_CUSTOM}::test_a_write_planned_in_the_old_version_commits_in_the_new",
            f"{_LISTENER}/test_answers.py::test_slow_senders_have_a_deadline",
        ),
        "a body is read completely before its storage version is decided",
    ),
    "S9": Row(
        "an old version of restow is started on the store",
        (
            f"{_AGREEMENT}::test_a_server_that_cannot_read_stored_versions_never_writes",
            "tests/e2e/storageversion/test_upgrades.py::test_release_that_cannot_read_stored_versions",
        ),
    ),
    "S10": Row(
        "a user edits a StorageState, so that a downgrade looks safe",
        (
            f"{_SECURITY}/test_storage_threats.py::test_s1_s4_s10_no_ordinary_role_reaches_them",
            "tests/unit/cli/test_census.py::test_stale_objects",
            "tests/unit/cli/test_census.py::test_servers_of_two_releases",
        ),
    ),
}

REPORTS: Final[dict[str, Row]] = {
    "CVE-2018-1002105": Row(
        "bytes after a protocol upgrade that a backend refused",
        (
            f"{_PROXY}::test_cve_2018_1002105_a_failed_upgrade_opens_nothing",
            f"{_PROXY}::test_cve_2018_1002105_upgrades_have_no_body",
        ),
    ),
    "CVE-2018-1002102, CVE-2020-8559": Row(
        "a backend redirects a protocol upgrade or a read to another host",
        (f"{_PROXY}::test_cve_2018_1002102_and_2020_8559_redirects_are_not_followed",),
    ),
    "CVE-2022-3172": Row(
        "a backend redirects the client",
        (
            f"{_PROXY}::test_cve_2022_3172_redirects_do_not_reach_the_client",
            f"{_PROXY}::test_cve_2022_3172_not_modified_passes",
            f"{_PROXY}::test_cve_2022_3172_own_fetches_follow_nothing",
        ),
    ),
    "CVE-2020-8561": Row(
        "a webhook redirects to an address of the server itself",
        (
            f"{_API}/admission/test_answers.py::test_cve_2020_8561_no_redirect_is_followed",
            f"{_API}/webhooks/test_failures.py::test_wrong_answers",
        ),
    ),
    "CVE-2020-8562, CVE-2022-3294, CVE-2020-8555": Row(
        "an address of a backend that is on the server's own machine, in any notation, or a name"
        " that resolves to another address the second time",
        (
            f"{_PROXY}::test_cve_2020_8562_no_connection_to_special_addresses",
            f"{_PROXY}::test_cve_2020_8562_a_name_is_resolved_once",
            f"{_API}/admission/test_answers.py::test_unreachable_webhooks",
        ),
    ),
    "CVE-2019-11247": Row(
        "a cluster-scoped custom resource through the path of a namespace, and the reverse",
        (
            f"{_SECURITY}/test_matrix.py::test_cve_2019_11247_no_way_around_by_a_namespace",
            f"{_API}/test_discovery.py::test_cluster_scoped_resources_below_a_namespace",
        ),
    ),
    "CVE-2022-3162": Row(
        "a field selector with a path outside of its kind",
        (f"{_SECURITY}/test_cves.py::test_cve_2022_3162_selectors_climb_nowhere",),
    ),
    "CVE-2015-5305": Row(
        "names of CRDs and objects that are paths",
        (
            f"{_SECURITY}/test_cves.py::test_cve_2015_5305_names_are_no_paths",
            "tests/unit/apimachinery/test_metadata_rules.py::test_bad_path_segments",
        ),
    ),
    "CVE-2016-1905": Row(
        "an object that admission refuses, on every other write path",
        (
            f"{_API}/admission/test_paths.py::test_cve_2016_1905_denied_on_every_path",
            f"{_API}/test_admission.py::test_a_refusal_changes_nothing",
            f"{_API}/policies/test_policies.py::test_tables",
        ),
    ),
    "CVE-2021-25735": Row(
        "admission gets an old object that was already changed",
        (f"{_API}/admission/test_paths.py::test_cve_2021_25735_the_old_object_is_the_stored_one",),
    ),
    "CVE-2019-1002100": Row(
        "a JSON patch with too many operations, or with copies that grow exponentially",
        (
            f"{_SECURITY}/test_cves.py::test_cve_2019_1002100_patches_have_limits",
            "tests/unit/apimachinery/test_json_patch.py::test_too_many_operations",
            "tests/unit/apimachinery/test_json_patch.py::test_doubling_copies",
        ),
    ),
    "CVE-2019-11253": Row(
        "YAML aliases that grow exponentially, deeply nested JSON",
        (
            f"{_SECURITY}/test_cves.py::test_cve_2019_11253_bombs",
            "tests/unit/apimachinery/test_yaml_codec.py::test_alias_bomb",
            "tests/conformance/custom/test_bad_definitions.py::test_yaml_bomb",
        ),
    ),
    "CVE-2019-11254": Row(
        "YAML that is slow to parse",
        (
            f"{_SECURITY}/test_cves.py::test_cve_2019_11254_slow_yaml",
            f"{_API}/test_bad_input.py::test_bad_input_does_not_block_others",
        ),
    ),
    "CVE-2020-8552": Row(
        "different requests, so that the number of metrics grows",
        (
            f"{_SECURITY}/test_cves.py::test_cve_2020_8552_metrics_do_not_grow",
            f"{_API}/test_bad_input.py::test_memory_does_not_grow",
            "tests/unit/migration/test_metrics.py::test_no_label_grows_without_bound",
        ),
    ),
    "CVE-2019-11250": Row(
        "credentials in logs at the highest level",
        (
            f"{_SECURITY}/test_cves.py::test_cve_2019_11250_nothing_secret_is_written_down",
            f"{_API}/test_audit.py::test_no_credentials",
            f"{_API}/test_authentication.py::test_a_bad_credential_is_a_401_on_all_paths",
        ),
    ),
    "CVE-2023-44487, CVE-2023-39325, CVE-2023-45288": Row(
        "floods of HTTP/2 streams and frames",
        (
            f"{_SECURITY}/test_cves.py::test_cve_2023_44487_no_http_2",
            f"{_LISTENER}/test_tls.py::test_requests_over_tls",
            f"{_LISTENER}/test_requests.py::test_upgrades_are_ignored",
        ),
        "HTTP/2 is not offered, and upgrades to it are ignored",
    ),
    "CVE-2022-41717, CVE-2022-41723": Row(
        "growth of the header compression tables of HTTP/2",
        (f"{_LISTENER}/test_malformed.py::test_a_large_head",),
        "HTTP/2 is not supported; a header block has a size limit",
    ),
    "CVE-2024-24786, CVE-2021-3121": Row(
        "malformed protobuf",
        (
            f"{_SECURITY}/test_cves.py::test_cve_2024_24786_malformed_protobuf",
            "tests/unit/apimachinery/test_protobuf.py::test_a_malformed_message_is_refused",
            "tests/unit/apimachinery/test_protobuf.py::test_endless_nesting_is_refused",
            "tests/unit/apimachinery/test_protobuf.py::test_a_flood_of_empty_messages_is_refused",
        ),
    ),
    "CVE-2023-2727, CVE-2023-2728, CVE-2024-3177": Row(
        "a policy for containers that does not cover init and ephemeral containers",
        (f"{_API}/admission/test_paths.py::test_cve_2016_1905_denied_on_every_path",),
        "there are no built-in rules for containers; the others are tested on every path",
    ),
    "CVE-2025-4563": Row(
        "a rule that is validated on one write path and not on another",
        (f"{_SECURITY}/test_cves.py::test_cve_2025_4563_one_validator_for_all_ways",),
    ),
    "CVE-2025-5187": Row(
        "a user who may update but not delete an object gives it an owner that does not exist",
        (f"{_API}/test_owner_references.py::test_setting_owners_needs_delete_permission",),
    ),
    "CVE-2024-7598": Row(
        "creating in a namespace that is being deleted",
        (f"{_API}/test_create.py::test_a_terminating_namespace",),
        "the deletion order is not guaranteed: no workload runs in the namespaces",
    ),
    "CVE-2020-8554, CVE-2021-25740": Row(
        "external addresses of services, endpoints in other namespaces",
        why_not="services and endpoints are only stored: the only traffic to them is that to"
        " aggregated servers, whose addresses are checked separately",
    ),
    "CVE-2021-29923": Row(
        "addresses with leading zeros",
        (
            f"{_PROXY}::test_cve_2020_8562_no_connection_to_special_addresses",
            "tests/unit/aggregator/test_addresses.py::test_invalid_addresses",
        ),
    ),
    "CVE-2024-51744": Row(
        "tokens with another algorithm, key, audience, issuer or time, or of excessive length",
        (
            f"{_API}/test_service_accounts.py::test_refuses_wrong_claims",
            f"{_API}/test_service_accounts.py::test_refuses_forgeries",
            f"{_API}/test_service_accounts.py::test_validity_period",
            "tests/unit/apimachinery/test_jwt.py::test_refuses",
            f"{_OIDC}::test_a_token_with_bad_claims_is_a_401",
            f"{_OIDC}::test_a_token_with_an_invalid_signature_is_a_401",
        ),
    ),
    "CVE-2025-43859": Row(
        "requests that two parsers would split differently",
        (
            f"{_LISTENER}/test_malformed.py::test_malformed_requests_are_refused",
            f"{_LISTENER}/test_malformed.py::test_good_requests_before_are_answered",
            f"{_LISTENER}/test_malformed.py::test_trailers_change_nothing",
            f"{_LISTENER}/test_malformed.py::test_a_length_that_lies",
            "tests/unit/client/test_http1.py::test_nothing_can_be_smuggled_into_a_request",
        ),
    ),
    "kubernetes/kubernetes#40218": Row(
        "invalid patches",
        (
            f"{_SECURITY}/test_cves.py::test_kubernetes_40218_malformed_patches",
            "tests/unit/apimachinery/test_json_patch.py::test_makes_no_sense",
            "tests/unit/apimachinery/test_json_patch.py::test_does_not_fit",
        ),
    ),
    "etcd-io/etcd#21683": Row(
        "reads that bypass etcd's permissions in a nested transaction",
        why_not="restow authorizes requests before the store: only servers have a credential of"
        " etcd, and etcd's permissions do not separate tenants",
    ),
}


def page() -> str:
    """The generated page."""
    lines = [
        _HEAD,
        *_rows(THREATS),
        "",
        "## Vulnerabilities of other servers",
        "",
        *_rows(REPORTS),
        "",
        "## Limits",
        "",
        "| limit and response | tests |",
        "|---|---|",
    ]
    for limit, found in LIMITS.items():
        shown = _shown((), found) if isinstance(found, str) else _shown(found, "")
        lines.append(f"| {limit} | {shown} |")
    return "\n".join(lines) + "\n"


def _rows(rows: Mapping[str, Row]) -> list[str]:
    found = ["| | attack | tests |", "|---|---|---|"]
    return found + [
        f"| {name} | {row.attack} | {_shown(row.tests, row.why_not)} |"
        for name, row in rows.items()
    ]


def _shown(tests: tuple[str, ...], why_not: str) -> str:
    parts = [f"`{each}`" for each in tests]
    return "; ".join([part for part in [", ".join(parts), why_not] if part])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
