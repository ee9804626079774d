"""report: the subresource of a StorageVersion for the storage versions of servers with another
store.

    POST    {"serverID": …, "store": …, "sequence": …, "objectKind": …, "encodingVersion": …, …}
    DELETE  ?serverID=…&store=…&sequence=…

The StorageVersion need not exist: it is created with its first server entry and deleted with the
last. Both requests are idempotent. They are for servers only: reports are trusted like those of a
server on this store, so a client with this permission can stop a migration, or make one start too
early.

    409   the report contradicts others, or is older than the recorded one
    422   fields with invalid values

Not here: how reports are recorded (`restow.storageversion.remote_reports`).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Iterable
from typing import Final

import msgspec

from restow.apimachinery import body_codec, field_errors, status
from restow.apimachinery.name_formats import dns_1035_label_problem, subdomain_problem
from restow.apimachinery.names import GroupKind
from restow.apimachinery.status_error import StatusCause
from restow.apis.internal_v1alpha1 import API_VERSION, resource_of_name
from restow.apis.storage_version_report import (
    KIND,
    SEQUENCE_PARAMETER,
    SERVER_PARAMETER,
    STORE_PARAMETER,
    StorageVersionReport,
)
from restow.endpoints.handlers.get import resource_of
from restow.endpoints.handlers.server import Server
from restow.httpserver.response import HttpResponse
from restow.request.context import Context
from restow.request.parameters import is_dry_run
from restow.request.responses import respond_object
from restow.storageversion.errors import NotSettled, ReportRefused
from restow.storageversion.identity import ServerId
from restow.storageversion.remote_reports import RemoteReports
from restow.storageversion.rules import StorageVersionEntries, StorageVersionEntry

BODY_BYTES_MAX: Final = 16 * 1024
"""Small, because the entries of all servers are in one object."""
VERSIONS_MAX: Final = 32
KEYS_MAX: Final = 64
KEY_LENGTH_MAX: Final = 1300
"""For KMS plug-ins: includes the plug-in's name and the key's name there."""
SEQUENCE_MAX: Final = 2**63 - 1

_SERVER_ID: Final = re.compile(r"apiserver-[a-z2-7]{26}")
_STORE_ID: Final = re.compile(r"[0-9a-f]{32}")
_OBJECT_KIND: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")


class ReportHandler:
    """Handles POST: call it with a server and a request."""

    def __init__(self, reports: RemoteReports) -> None:
        self._reports = reports

    async def __call__(self, _server: Server, context: Context) -> HttpResponse:
        _check_no_dry_run(context)
        sent_report = read_report(context)
        entry = StorageVersionEntry(
            server_id=ServerId(sent_report.server_id),
            encoding_version=sent_report.encoding_version,
            decodable_versions=tuple(sent_report.decodable_versions),
            served_versions=tuple(sent_report.served_versions),
            key_id=sent_report.encryption_key,
            readable_keys=tuple(sent_report.readable_encryption_keys),
            preferred_key=sent_report.preferred_encryption_key,
            store=sent_report.store,
            sequence=sent_report.sequence,
        )
        await _settled(
            context, self._reports.report(context.info.name, sent_report.object_kind, entry)
        )
        sent_report.kind, sent_report.api_version, sent_report.metadata = (
            KIND,
            API_VERSION,
            {"name": context.info.name},
        )
        return respond_object(context, 201, msgspec.to_builtins(sent_report))


class WithdrawHandler:
    """Handles DELETE: removes the entries of a server."""

    def __init__(self, reports: RemoteReports) -> None:
        self._reports = reports

    async def __call__(self, _server: Server, context: Context) -> HttpResponse:
        _check_no_dry_run(context)
        info, causes = context.info, _name_causes(context.info.name)
        server_id, store = info.parameter(SERVER_PARAMETER), info.parameter(STORE_PARAMETER)
        _check_form(causes, SERVER_PARAMETER, server_id, _SERVER_ID)
        _check_form(causes, STORE_PARAMETER, store, _STORE_ID)
        sequence = info.number(SEQUENCE_PARAMETER)
        if sequence is None:
            causes.append(field_errors.required(SEQUENCE_PARAMETER))
        else:
            _check_sequence(causes, sequence)
        if causes:
            raise _invalid(context, causes)
        assert sequence is not None
        name = context.info.name
        taken = self._reports.withdraw(
            name, server_id=ServerId(server_id), store=store, sequence=sequence
        )
        await _settled(context, taken)
        details = {"name": name, "group": resource_of(context).group, "kind": "storageversions"}
        answer = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        return respond_object(context, 200, {**answer, "details": details})


def read_report(context: Context) -> StorageVersionReport:
    """Parse the body. Raises 400, 413, 415 or 422."""
    content_type = context.request.headers.get("content-type") or ""
    body = body_codec.decode(context.request.body, content_type, size_max=BODY_BYTES_MAX).value
    try:
        sent_report = msgspec.convert(body, StorageVersionReport)
    except msgspec.ValidationError as error:
        raise _invalid(context, [StatusCause("FieldValueInvalid", str(error), "")]) from error
    causes = _causes(context.info.name, sent_report)
    if causes:
        raise _invalid(context, causes)
    return sent_report


def _causes(name: str, sent_report: StorageVersionReport) -> list[StatusCause]:
    causes = _name_causes(name)
    if sent_report.kind not in ("", KIND):
        causes.append(field_errors.not_supported("kind", sent_report.kind, [KIND]))
    if sent_report.api_version not in ("", API_VERSION):
        causes.append(
            field_errors.not_supported("apiVersion", sent_report.api_version, [API_VERSION])
        )
    if sent_report.metadata.get("name", name) != name:
        why = f"must match the name in the path: {name}"
        causes.append(field_errors.invalid("metadata.name", sent_report.metadata["name"], why))
    _check_form(causes, "serverID", sent_report.server_id, _SERVER_ID)
    _check_form(causes, "store", sent_report.store, _STORE_ID)
    _check_form(causes, "objectKind", sent_report.object_kind, _OBJECT_KIND)
    _check_sequence(causes, sent_report.sequence)
    _check_versions(causes, resource_of_name(name).group, sent_report)
    _check_keys(causes, sent_report)
    return causes


def _name_causes(name: str) -> list[StatusCause]:
    """Errors in the name `<group>.<resource>`; resources of the core group cannot be reported."""
    group, resource = resource_of_name(name)
    problems = [dns_1035_label_problem(resource)]
    problems += [subdomain_problem(group) if "." in group else "the group must have a domain"]
    return [
        field_errors.invalid("metadata.name", name, f"must be <group>.<resource>: {why}")
        for why in problems
        if why is not None
    ]


def _check_versions(
    causes: list[StatusCause], group: str, sent_report: StorageVersionReport
) -> None:
    lists = {
        "decodableVersions": sent_report.decodable_versions,
        "servedVersions": sent_report.served_versions,
    }
    for field, versions in lists.items():
        if len(versions) > VERSIONS_MAX:
            causes.append(field_errors.too_many(field, count=len(versions), count_max=VERSIONS_MAX))
            return
        _check_once(causes, field, versions)
    places = [("encodingVersion", sent_report.encoding_version)]
    places += [(f"{f}[{n}]", text) for f, found in lists.items() for n, text in enumerate(found)]
    for field, text in places:
        found_group, _, version = text.rpartition("/")
        if found_group != group or dns_1035_label_problem(version) is not None:
            why = f"must be a version of the group {group}"
            causes.append(field_errors.invalid(field, text, why))
    if sent_report.encoding_version not in sent_report.decodable_versions:
        why = f"decodableVersions must include encodingVersion {sent_report.encoding_version}"
        causes.append(
            field_errors.invalid("decodableVersions", sent_report.decodable_versions, why)
        )


def _check_keys(causes: list[StatusCause], sent_report: StorageVersionReport) -> None:
    readable = sent_report.readable_encryption_keys
    if not 0 < len(readable) <= KEYS_MAX:
        count = len(readable)
        causes.append(
            field_errors.too_many("readableEncryptionKeys", count=count, count_max=KEYS_MAX)
            if readable
            else field_errors.required("readableEncryptionKeys")
        )
        return
    _check_once(causes, "readableEncryptionKeys", readable)
    places = [(f"readableEncryptionKeys[{n}]", text) for n, text in enumerate(readable)]
    for field, found in (
        ("encryptionKey", sent_report.encryption_key),
        ("preferredEncryptionKey", sent_report.preferred_encryption_key),
    ):
        if found:
            places.append((field, found))
    for field, text in places:
        if len(text) > KEY_LENGTH_MAX:
            causes.append(field_errors.too_long(field, length_max=KEY_LENGTH_MAX))
        elif not text:
            causes.append(field_errors.required(field))
        elif not text.isprintable():  # otherwise any text, as in EncryptionConfiguration
            causes.append(field_errors.invalid(field, text, "must be printable"))


def _check_once(causes: list[StatusCause], field: str, texts: Iterable[str]) -> None:
    seen: set[str] = set()
    for number, text in enumerate(texts):
        if text in seen:
            causes.append(field_errors.duplicate(f"{field}[{number}]", text))
        seen.add(text)


def _check_form(causes: list[StatusCause], field: str, text: str, form: re.Pattern[str]) -> None:
    if not text:
        causes.append(field_errors.required(field))
    elif form.fullmatch(text) is None:
        causes.append(field_errors.invalid(field, text, f"must match {form.pattern}"))


def _check_sequence(causes: list[StatusCause], sequence: int) -> None:
    if not 0 < sequence <= SEQUENCE_MAX:
        why = f"must be an integer from 1 to {SEQUENCE_MAX}"
        causes.append(field_errors.invalid("sequence", sequence, why))


def _check_no_dry_run(context: Context) -> None:
    if is_dry_run(context.info):
        raise status.bad_request("report does not support dryRun")


async def _settled(context: Context, work: Awaitable[StorageVersionEntries]) -> None:
    """Await a report; raise 409 if it was refused, 503 if it is to be retried."""
    try:
        await work
    except ReportRefused as error:
        resource = resource_of(context).kind.group_resource
        raise status.conflict(resource, context.info.name, why=str(error)) from error
    except NotSettled as error:
        raise status.unavailable(
            str(error), retry_after_seconds=status.RETRY_AFTER_SECONDS
        ) from error


def _invalid(context: Context, causes: list[StatusCause]) -> status.StatusError:
    return status.invalid(GroupKind(resource_of(context).group, KIND), context.info.name, causes)
