"""The field manager of a request, as `managedFields` records it.

The name is `fieldManager`, or else the User-Agent up to the first slash. Pure.

Not here: the use of the name (`restow.apimachinery.apply`), and its validation (`parameters`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from restow.apimachinery.apply.entries import MANAGER_LENGTH_MAX, Manager
from restow.request.context import Context

_AGENTS_KEPT_MAX: Final = 1_024
_AGENT_KEPT_LENGTH_MAX: Final = 256


def manager_of(context: Context) -> Manager:
    """The manager of a request: its name, and the subresource through which it writes."""
    info = context.info
    if info.query and (name := info.parameter("fieldManager")):
        return Manager(name, info.subresource)
    agent = context.request.headers.get("user-agent") or ""
    if len(agent) > _AGENT_KEPT_LENGTH_MAX:
        agent = agent[: _AGENT_KEPT_LENGTH_MAX * 4]
        return Manager(_name_of(agent), info.subresource)
    return _kept(agent, info.subresource)


@lru_cache(maxsize=_AGENTS_KEPT_MAX)
def _kept(agent: str, subresource: str) -> Manager:
    return Manager(_name_of(agent), subresource)


def _name_of(agent: str) -> str:
    """The product name at the start of a User-Agent: printable characters, up to the length
    limit."""
    name, size = "", 0
    for character in agent.partition("/")[0]:
        if not character.isprintable():
            continue
        size += len(character.encode())
        if size > MANAGER_LENGTH_MAX:
            break
        name += character
    return name
