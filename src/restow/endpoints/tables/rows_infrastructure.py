"""Columns of addresses, devices, volume attributes classes, and components of the server itself.

Not here: volumes and nodes (`rows_core`), and storage and runtime classes (`rows_cluster`).
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from restow.endpoints.tables.columns import AGE, NAME, TableColumns, column
from restow.endpoints.tables.values import NONE, age, items, mapping, read, text, texts


def _name(obj: Mapping[str, Any]) -> str:
    return text(obj, "metadata", "name")


def _name_and_age(obj: Mapping[str, Any], now: datetime) -> list[object]:
    return [_name(obj), age(obj, now)]


def _component_status(obj: Mapping[str, Any], now: datetime) -> list[object]:
    del now  # always current
    for found in items(obj, "conditions"):
        if text(found, "type") == "Healthy":
            word = "Healthy" if text(found, "status") == "True" else "Unhealthy"
            return [_name(obj), word, text(found, "message"), text(found, "error")]
    return [_name(obj), "Unknown", "", ""]


def _ip_address(obj: Mapping[str, Any], now: datetime) -> list[object]:
    del now  # this table has no age
    parent = mapping(obj, "spec", "parentRef")
    if not parent:
        return [_name(obj), NONE]
    group, resource = text(parent, "group"), text(parent, "resource")
    shown = (f"{resource}.{group}" if group else resource).lower()
    parts = [shown, text(parent, "namespace"), text(parent, "name")]
    return [_name(obj), "/".join(part for part in parts if part)]


def _service_cidr(obj: Mapping[str, Any], now: datetime) -> list[object]:
    return [_name(obj), ",".join(texts(obj, "spec", "cidrs")), age(obj, now)]


def _volume_attributes_class(obj: Mapping[str, Any], now: datetime) -> list[object]:
    return [_name(obj), text(obj, "driverName"), age(obj, now)]


def _resource_claim(obj: Mapping[str, Any], now: datetime) -> list[object]:
    return [_name(obj), _claim_state(obj), age(obj, now)]


def _claim_state(obj: Mapping[str, Any]) -> str:
    is_deleted = read(obj, "metadata", "deletionTimestamp") is not None
    states = ["deleted"] if is_deleted else []
    if read(obj, "status", "allocation") is None:
        return ",".join(states) or "pending"
    states.append("allocated")
    if items(obj, "status", "reservedFor"):
        states.append("reserved")
    return ",".join(states)


def _resource_slice(obj: Mapping[str, Any], now: datetime) -> list[object]:
    return [
        _name(obj),
        text(obj, "spec", "nodeName"),
        text(obj, "spec", "driver"),
        text(obj, "spec", "pool", "name"),
        age(obj, now),
    ]


_RESOURCE: Final = "resource.k8s.io"

COLUMNS: Final[dict[tuple[str, str], TableColumns]] = {
    ("", "ComponentStatus"): TableColumns(
        [
            NAME,
            column("Status", about="Whether it is healthy."),
            column("Message", about="Status message of the component."),
            column("Error", about="Error of the health check."),
        ],
        _component_status,
    ),
    ("networking.k8s.io", "IPAddress"): TableColumns(
        [NAME, column("ParentRef", about="Object that uses the address.")], _ip_address
    ),
    ("networking.k8s.io", "ServiceCIDR"): TableColumns(
        [NAME, column("CIDRs", about="Ranges of service addresses."), AGE], _service_cidr
    ),
    ("storage.k8s.io", "VolumeAttributesClass"): TableColumns(
        [NAME, column("DriverName", about="Driver that interprets the attributes."), AGE],
        _volume_attributes_class,
    ),
    (_RESOURCE, "DeviceClass"): TableColumns([NAME, AGE], _name_and_age),
    (_RESOURCE, "ResourceClaim"): TableColumns(
        [NAME, column("State", about="State of the claim."), AGE], _resource_claim
    ),
    (_RESOURCE, "ResourceClaimTemplate"): TableColumns([NAME, AGE], _name_and_age),
    (_RESOURCE, "ResourceSlice"): TableColumns(
        [
            NAME,
            column("Node", about="The node that has the devices."),
            column("Driver", about="Driver that manages the devices."),
            column("Pool", about="Pool of the devices."),
            AGE,
        ],
        _resource_slice,
    ),
}
