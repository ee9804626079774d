"""Where each known attack is shown to fail: threats, reports about other servers, and their tests.

    python -m tests.architecture.security_map       # writes docs/reference/security-map.md anew

A row leads to tests, or says in one sentence why it cannot apply; some do both. Only rows and the
page that is made of them. The limits are in `test_security_map`.
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
# Attacks and the tests that try them

For each attack that a server of this kind is known to need an answer to: the tests that make it, or
why it cannot be made. A test compares this page with the table it comes from, and checks that what
it names exists.

Who may do what, of every kind, verb and subresource, is tried in
`tests/conformance/security/test_matrix.py`.

## Against what servers tell each other about storage
"""


class Row(NamedTuple):
    """An attack, and what shows that it fails."""

    attack: str
    tests: tuple[str, ...] = ()
    why_not: str = ""
    """Why it, or a part of it, cannot apply."""


THREATS: Final[dict[str, Row]] = {
    "S1": Row(
        "a user with many rights writes the status of a StorageVersion: a forged entry, a forged"
        " common version, an entry taken out",
        (
            f"{_SECURITY}/test_storage_threats.py::test_s1_s6_forged_and_absurd_reports",
            f"{_SECURITY}/test_storage_threats.py::test_s1_s4_s10_no_ordinary_role_reaches_them",
            f"{_API}/test_server_owned.py::test_the_status_of_a_report_is_the_servers",
            "tests/e2e/storageversion/test_ownership.py::test_nobody_writes_for_a_server",
        ),
    ),
    "S2": Row(
        "the identity lease of another server is deleted or edited",
        (
            f"{_API}/test_server_owned.py::test_identity_leases_are_the_servers",
            "tests/e2e/storageversion/test_ownership.py::test_nobody_writes_for_a_server",
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
        "no decision reads the times of a lease: who is there is known by keys that only servers"
        " write, and by clocks that only run forward",
    ),
    "S4": Row(
        "thousands of requests to migrate, or one about what the user may not see",
        (
            f"{_SECURITY}/test_storage_threats.py::test_s1_s4_s10_no_ordinary_role_reaches_them",
            f"{_MIGRATOR}/test_controller.py::test_one_after_another",
            f"{_MIGRATOR}/test_controller.py::test_a_bounded_number",
            "tests/e2e/controllers/test_rights.py::test_the_manifests_are_enough",
        ),
        "the status of a request names objects that could not be rewritten, so that reading it is a"
        " right of its own, in none of the default roles",
    ),
    "S5": Row(
        "the position of a running migration is edited, so that objects are left out",
        (
            f"{_API}/test_rewrite.py::test_tokens_are_for_one_migration_to_one_target",
            f"{_MIGRATOR}/test_forged.py::test_a_forged_position",
            f"{_MIGRATOR}/test_forged.py::test_a_forged_proof",
            f"{_API}/test_verification.py::test_a_forged_success_is_no_evidence",
            f"{_API}/test_verification.py::test_owned_annotations_cannot_be_forged",
            f"{_MIGRATOR}/test_position.py::test_for_nothing_else",
            f"{_API}/test_list.py::test_tokens_that_are_not_ours",
        ),
    ),
    "S6": Row(
        "absurd versions and names of servers are reported: a megabyte, control characters, `../`",
        (
            f"{_SECURITY}/test_storage_threats.py::test_s1_s6_forged_and_absurd_reports",
            "tests/unit/kinds/test_storage_versions.py::test_bad_entries",
        ),
    ),
    "S7": Row(
        "a definition changes its storage version in a loop",
        (
            f"{_SECURITY}/test_storage_threats.py::test_s7_a_definition_that_flips",
            "tests/conformance/custom/test_versions.py::test_storage_flips_under_objects",
        ),
    ),
    "S8": Row(
        "a write with a slow body is held across a change of the version",
        (
            f"{_API}/test_fence.py::test_every_way_of_writing_is_fenced",
            f"{_CUSTOM}::test_a_write_that_was_planned_in_the_old_version_lands_in_the_new",
            f"{_LISTENER}/test_answers.py::test_slow_senders_have_a_deadline",
        ),
        "a body is read whole before anything is decided about how it is stored",
    ),
    "S9": Row(
        "an old program is started on the store",
        (
            f"{_AGREEMENT}::test_a_server_that_cannot_read_what_is_stored_never_writes",
            "tests/e2e/storageversion/test_upgrades.py::test_release_that_cannot_read_what_is_stored",
        ),
    ),
    "S10": Row(
        "a user edits what is said to be stored, so that a downgrade looks safe",
        (
            f"{_SECURITY}/test_storage_threats.py::test_s1_s4_s10_no_ordinary_role_reaches_them",
            "tests/unit/cli/test_census.py::test_left_behind",
            "tests/unit/cli/test_census.py::test_servers_of_two_releases",
        ),
    ),
}

REPORTS: Final[dict[str, Row]] = {
    "CVE-2018-1002105": Row(
        "bytes behind an upgrade that a backend has refused",
        (
            f"{_PROXY}::test_cve_2018_1002105_a_failed_upgrade_opens_nothing",
            f"{_PROXY}::test_cve_2018_1002105_upgrades_have_no_body",
        ),
    ),
    "CVE-2018-1002102, CVE-2020-8559": Row(
        "a backend redirects an upgrade or a read to another host",
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
        "a webhook redirects to an address of the server's own",
        (
            f"{_API}/admission/test_answers.py::test_cve_2020_8561_no_redirect_is_followed",
            f"{_API}/webhooks/test_failures.py::test_wrong_answers",
        ),
    ),
    "CVE-2020-8562, CVE-2022-3294, CVE-2020-8555": Row(
        "an address of a backend that leads to the server's own machine, in any spelling, or a name"
        " that means something else the second time",
        (
            f"{_PROXY}::test_cve_2020_8562_no_connection_to_special_addresses",
            f"{_PROXY}::test_cve_2020_8562_a_name_is_resolved_once",
            f"{_API}/admission/test_answers.py::test_nobody_there",
        ),
    ),
    "CVE-2019-11247": Row(
        "a cluster's custom resource by the path of a namespace, and the other way round",
        (
            f"{_SECURITY}/test_matrix.py::test_cve_2019_11247_no_way_around_by_a_namespace",
            f"{_API}/test_discovery.py::test_namespaces_give_no_way_around",
        ),
    ),
    "CVE-2022-3162": Row(
        "a field selector that climbs out of its kind",
        (f"{_SECURITY}/test_cves.py::test_cve_2022_3162_selectors_climb_nowhere",),
    ),
    "CVE-2015-5305": Row(
        "names of definitions and objects that are paths",
        (
            f"{_SECURITY}/test_cves.py::test_cve_2015_5305_names_are_no_paths",
            "tests/unit/apimachinery/test_metadata_rules.py::test_bad_path_segments",
        ),
    ),
    "CVE-2016-1905": Row(
        "what admission refuses, tried by every other way to write it",
        (
            f"{_API}/admission/test_paths.py::test_cve_2016_1905_denied_on_every_path",
            f"{_API}/test_admission.py::test_a_refusal_leaves_all_as_it_was",
            f"{_API}/policies/test_policies.py::test_tables",
        ),
    ),
    "CVE-2021-25735": Row(
        "admission is shown an old object that has been changed already",
        (f"{_API}/admission/test_paths.py::test_cve_2021_25735_the_old_object_is_the_stored_one",),
    ),
    "CVE-2019-1002100": Row(
        "a JSON patch of too many operations, or of copies that double",
        (
            f"{_SECURITY}/test_cves.py::test_cve_2019_1002100_patches_have_limits",
            "tests/unit/apimachinery/test_json_patch.py::test_too_many_operations",
            "tests/unit/apimachinery/test_json_patch.py::test_doubling_copies",
        ),
    ),
    "CVE-2019-11253": Row(
        "YAML whose references multiply, JSON that nests without end",
        (
            f"{_SECURITY}/test_cves.py::test_cve_2019_11253_bombs",
            "tests/unit/apimachinery/test_yaml_codec.py::test_alias_bomb",
            "tests/conformance/custom/test_bad_definitions.py::test_yaml_bomb",
        ),
    ),
    "CVE-2019-11254": Row(
        "YAML that is made to be read slowly",
        (
            f"{_SECURITY}/test_cves.py::test_cve_2019_11254_slow_yaml",
            f"{_API}/test_bad_input.py::test_bad_input_does_not_hold_up_others",
        ),
    ),
    "CVE-2020-8552": Row(
        "requests that all differ, so that metrics grow",
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
        "HTTP/2 is neither offered nor switched to",
    ),
    "CVE-2022-41717, CVE-2022-41723": Row(
        "growth of the tables that HTTP/2 packs headers with",
        (f"{_LISTENER}/test_malformed.py::test_a_large_head",),
        "HTTP/2 is not spoken; a block of headers has a limit",
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
        "a policy for containers that is not asked about other kinds of containers",
        (f"{_API}/admission/test_paths.py::test_cve_2016_1905_denied_on_every_path",),
        "no rule about containers is built in; rules that are, are tried on every path",
    ),
    "CVE-2025-4563": Row(
        "what is validated on one way to write and not on another",
        (f"{_SECURITY}/test_cves.py::test_cve_2025_4563_one_validator_for_all_ways",),
    ),
    "CVE-2025-5187": Row(
        "who may change an object and not delete it gives it an owner that is not there",
        (f"{_API}/test_owner_references.py::test_who_may_not_delete_names_no_owner",),
    ),
    "CVE-2024-7598": Row(
        "creating in a namespace that is being deleted",
        (f"{_API}/test_create.py::test_a_terminating_namespace",),
        "an order in which the rest goes is promised to nobody: nothing runs in our namespaces",
    ),
    "CVE-2020-8554, CVE-2021-25740": Row(
        "external addresses of services, endpoints in other namespaces",
        why_not="services and endpoints are data here: no traffic follows them but that to"
        " aggregated servers, whose addresses are checked by themselves",
    ),
    "CVE-2021-29923": Row(
        "addresses with leading zeros",
        (
            f"{_PROXY}::test_cve_2020_8562_no_connection_to_special_addresses",
            "tests/unit/aggregator/test_addresses.py::test_invalid_addresses",
        ),
    ),
    "CVE-2024-51744": Row(
        "tokens with another algorithm, key, audience, issuer or time, or of absurd length",
        (
            f"{_API}/test_service_accounts.py::test_refuses_claims",
            f"{_API}/test_service_accounts.py::test_refuses_forgeries",
            f"{_API}/test_service_accounts.py::test_time",
            "tests/unit/apimachinery/test_jwt.py::test_refuses",
            f"{_OIDC}::test_a_token_with_bad_claims_is_a_401",
            f"{_OIDC}::test_a_token_with_an_invalid_signature_is_a_401",
        ),
    ),
    "CVE-2025-43859": Row(
        "requests that two readers would divide differently",
        (
            f"{_LISTENER}/test_malformed.py::test_malformed_requests_are_refused",
            f"{_LISTENER}/test_malformed.py::test_good_requests_before_are_answered",
            f"{_LISTENER}/test_malformed.py::test_trailers_change_nothing",
            f"{_LISTENER}/test_malformed.py::test_a_length_that_lies",
            "tests/unit/client/test_http1.py::test_nothing_can_be_smuggled_into_a_request",
        ),
    ),
    "kubernetes/kubernetes#40218": Row(
        "patches that make no sense",
        (
            f"{_SECURITY}/test_cves.py::test_kubernetes_40218_malformed_patches",
            "tests/unit/apimachinery/test_json_patch.py::test_makes_no_sense",
            "tests/unit/apimachinery/test_json_patch.py::test_does_not_fit",
        ),
    ),
    "etcd-io/etcd#21683": Row(
        "reads that a nested transaction lets past the rights of etcd",
        why_not="rights are decided here, before the store: nobody but servers has a credential of"
        " etcd, and no tenant is kept apart by its rights",
    ),
}


def page() -> str:
    """The page of the reference."""
    lines = [
        _HEAD,
        *_rows(THREATS),
        "",
        "## Reports about other servers",
        "",
        *_rows(REPORTS),
        "",
        "## Limits",
        "",
        "| limit and answer | shown by |",
        "|---|---|",
    ]
    for limit, found in LIMITS.items():
        shown = _shown((), found) if isinstance(found, str) else _shown(found, "")
        lines.append(f"| {limit} | {shown} |")
    return "\n".join(lines) + "\n"


def _rows(rows: Mapping[str, Row]) -> list[str]:
    found = ["| | attack | shown by |", "|---|---|---|"]
    return found + [
        f"| {name} | {row.attack} | {_shown(row.tests, row.why_not)} |"
        for name, row in rows.items()
    ]


def _shown(tests: tuple[str, ...], why_not: str) -> str:
    parts = [f"`{each}`" for each in tests]
    return "; ".join([part for part in [", ".join(parts), why_not] if part])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
