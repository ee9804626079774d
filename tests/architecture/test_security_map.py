"""The table of limits: every row names existing tests.

The rows are the limits that a server of this kind needs. A row without a test has the reason.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
API = "tests/conformance/api"
LIMITS_OF = "tests/conformance/limits"
LISTENER = "tests/unit/httpserver"

LIMITS: dict[str, tuple[str, ...] | str] = {
    "request body, 3 MiB: 413": (
        f"{API}/test_bad_input.py::test_bad_input",
        f"{LISTENER}/test_malformed.py::test_the_client_can_read_the_rejection_of_a_large_body",
    ),
    "memory of unfinished requests of unauthenticated connections, and of one address: 503": (
        f"{LISTENER}/test_reader.py::test_unauthenticated_connections_have_a_budget_of_their_own",
        f"{LISTENER}/test_requests.py::test_unfinished_heads_leave_authenticated_clients_alone",
    ),
    "header block until a request is authenticated, 64 KiB: 431": (
        f"{LISTENER}/test_reader.py::test_heads_are_shorter_until_a_request_is_authenticated",
    ),
    "memory of unfinished requests of all authenticated connections: 503": (
        f"{LISTENER}/test_reader.py::test_half_read_bodies_share_a_budget",
        f"{LISTENER}/test_reader.py::test_half_read_heads_share_it",
    ),
    "JSON patch, 10 000 operations: 413": (
        "tests/unit/apimachinery/test_json_patch.py::test_too_many_operations",
        f"{API}/test_bad_input.py::test_bad_input",
    ),
    "JSON patch, bytes copied: 413": (
        "tests/unit/apimachinery/test_json_patch.py::test_doubling_copies",
    ),
    "nesting of JSON, YAML and patches: 400": (
        f"{API}/test_bad_input.py::test_bad_input",
        "tests/unit/apimachinery/test_json_patch.py::test_nesting",
    ),
    "header block, 1 MiB: 431": (f"{LISTENER}/test_malformed.py::test_a_large_head",),
    "header lines: 431": (f"{LISTENER}/test_malformed.py::test_too_many_header_lines",),
    "time for a head and for a body: 408": (
        f"{LISTENER}/test_answers.py::test_slow_senders_have_a_deadline",
    ),
    "idle connections: closed": (
        f"{LISTENER}/test_answers.py::test_silent_and_idle_connections_are_closed",
    ),
    "time for a handshake: closed": (
        f"{LISTENER}/test_tls.py::test_a_handshake_has_a_deadline",
        f"{LISTENER}/test_scarce.py::test_an_unfinished_handshake_is_ended",
    ),
    "unfinished handshakes: the oldest of the busiest address is closed": (
        f"{LISTENER}/test_scarce.py::test_unfinished_handshakes_are_limited",
        f"{LISTENER}/test_scarce.py::test_a_flood_of_handshakes_from_another_address",
    ),
    "TLS key updates, 32 in a row: closed": (
        f"{LISTENER}/test_tls_connection.py::test_changes_of_keys",
    ),
    "CPU time for all unauthenticated connections together: the rest is queued": (
        f"{LISTENER}/test_work_budget.py::test_the_budget_of_one_iteration",
        f"{LISTENER}/test_work_budget.py::test_unauthenticated_clients_wait_only_for_each_other",
    ),
    "CPU time for all authenticated connections together: users take turns": (
        f"{LISTENER}/test_work_budget.py::test_users_take_turns",
        f"{LISTENER}/test_work_budget.py::test_keys_take_turns",
    ),
    "each class of connections has limits of its own": (
        "tests/conformance/limits/test_classes.py::test_connections",
        "tests/conformance/limits/test_classes.py::test_bytes_of_unfinished_requests",
        "tests/conformance/limits/test_classes.py::test_slots_in_flight",
        "tests/conformance/limits/test_classes.py::test_pending_answers",
        "tests/conformance/limits/test_classes.py::test_watches",
    ),
    "abandoned requests return all that they took": (
        "tests/conformance/limits/test_abandoned.py::test_abandoned_requests_leave_nothing",
    ),
    "connections: unauthenticated ones are closed first, otherwise 503": (
        f"{LISTENER}/test_scarce.py::test_new_connections_displace_unauthenticated_ones",
        f"{LISTENER}/test_scarce.py::test_a_flood_of_silent_connections",
        f"{LISTENER}/test_requests.py::test_connections_over_the_limit_get_503",
        f"{LISTENER}/test_requests.py::test_a_thousand_idle_connections",
    ),
    "connections of one address: 503": (
        f"{LISTENER}/test_scarce.py::test_connections_from_one_address",
    ),
    "HTTP/2: not offered, upgrades ignored": (
        f"{LISTENER}/test_tls.py::test_requests_over_tls",
        f"{LISTENER}/test_requests.py::test_upgrades_are_ignored",
        f"{LISTENER}/test_malformed.py::test_malformed_requests_are_refused",
    ),
    "TLS 1.0 and 1.1: refused": (f"{LISTENER}/test_tls.py::test_old_versions_are_refused",),
    "pipelined requests: other connections are served in between": (
        f"{LISTENER}/test_answers.py::test_many_pipelined_requests",
    ),
    "repeatedly refused requests: slowed down": (
        f"{LISTENER}/test_scarce.py::test_repeated_rejections_throttle_a_connection",
    ),
    "in flight, reads: 429 and Retry-After": (
        f"{LIMITS_OF}/test_in_flight.py::test_reads_in_flight",
    ),
    "in flight, writes: 429 and Retry-After": (
        f"{LIMITS_OF}/test_in_flight.py::test_writes_in_flight",
    ),
    "in flight, fair between users": (
        f"{LIMITS_OF}/test_in_flight.py::test_a_flood_of_one_user_leaves_slots",
        "tests/unit/request/test_limits.py::test_pool_invariants",
    ),
    "watches of one user: 429": (f"{LIMITS_OF}/test_in_flight.py::test_watches_of_one_user",),
    "chunked bodies: authorized first, then parsed in steps": (
        f"{LISTENER}/test_requests.py::test_the_gate_comes_before_the_chunks",
        f"{LISTENER}/test_requests.py::test_others_are_served_while_chunks_are_read",
        f"{LISTENER}/test_reader.py::test_the_scanner_agrees_with_the_parser",
    ),
    "trailer lines: 431": (f"{LISTENER}/test_reader.py::test_trailers_are_limited",),
    "list as YAML, 4 MiB: 406": (
        f"{API}/test_discovery.py::test_a_list_that_is_too_long_for_yaml",
    ),
    "time for all long lists together, 2 ms in an iteration of the event loop": (
        f"{LISTENER}/test_streams.py::test_others_are_served_during_a_list",
    ),
    "watches in a bundle: slots are released": (
        "tests/unit/dashboard/test_paths.py::test_bundled_watches_do_not_switch_protocols",
        "tests/unit/dashboard/test_paths.py::test_a_bundle_closes_answers_that_it_cannot_use",
    ),
    "watches that are not read: closed": (
        f"{LISTENER}/test_streams.py::test_a_stalled_client_is_cut",
        f"{LISTENER}/test_streams.py::test_a_slow_watcher_pushes_back",
    ),
    "time of a request, 60 s: 504": (
        f"{LIMITS_OF}/test_deadlines.py::test_timeouts_are_capped",
        f"{API}/test_list.py::test_timeout_of_a_request",
    ),
    "time of a write, 34 s: 504, and executed once": (
        f"{LIMITS_OF}/test_deadlines.py::test_an_overdue_write_is_executed_once",
    ),
    "an invalid timeout: 400": (f"{LIMITS_OF}/test_deadlines.py::test_an_invalid_timeout",),
    "value for the store: 413": (
        f"{LIMITS_OF}/test_sizes.py::test_an_object_too_large_for_the_store",
    ),
    "names in bodies and paths: 422 and 400": (
        "tests/unit/apimachinery/test_metadata_rules.py::test_single_problems",
        "tests/unit/apimachinery/test_metadata_rules.py::test_bad_path_segments",
        f"{API}/test_bad_input.py::test_bad_input",
    ),
    "labels and annotations, 256 KiB: 422": (
        "tests/unit/apimachinery/test_metadata_rules.py::test_single_problems",
        f"{API}/test_bad_input.py::test_bad_input",
    ),
    "managed fields: members of a set, entries, names of managers": (
        "tests/unit/apimachinery/apply/test_sets.py::test_a_set_has_a_limit",
        "tests/unit/apimachinery/apply/test_entries.py::test_too_many_entries_are_none",
        "tests/unit/apimachinery/apply/test_entries.py::test_the_oldest_updates_are_joined",
        "tests/unit/apimachinery/apply/test_entries.py::test_names_of_managers",
    ),
    "continue token, forged or of another list: 400": (
        f"{API}/test_list.py::test_invalid_continue_tokens",
    ),
    "webhook, 30 s and its own timeout": (
        f"{API}/admission/test_answers.py::test_the_deadline_of_the_request",
        f"{API}/admission/test_answers.py::test_a_hanging_webhook_delays_no_other_requests",
    ),
    "CEL, cost of a rule and of an object: 422": (
        "tests/unit/apimachinery/structural/test_cel_rules.py::test_a_call_that_costs_too_much_ends",
        "tests/unit/apimachinery/structural/test_cel_rules.py::test_an_object_has_a_budget_for_all_its_rules",
    ),
    "resource version too high: 504 with its cause": (
        f"{API}/test_list.py::test_a_version_ahead_of_the_store",
        f"{API}/test_watch.py::test_versions_ahead_of_the_store",
    ),
    "resource version compacted: 410": (
        f"{API}/test_list.py::test_an_expired_token",
        f"{API}/test_watch.py::test_a_compaction_past_the_servers_own_watch",
    ),
}


@pytest.mark.parametrize("row", LIMITS)
def test_every_limit_leads_to_a_test(row: str) -> None:
    """Each row names existing tests, or the reason why there is none."""
    found = LIMITS[row]
    if isinstance(found, str):
        assert len(found.split()) > 3
        return
    for name in found:
        path, _, function = name.partition("::")
        text = (ROOT / path).read_text()
        assert re.search(rf"^(async )?def {function}\(", text, re.MULTILINE), name
