"""Who writes, as the fields of what is written will tell: the manager of a request.

A client says who it is by `fieldManager`, or else by its User-Agent, up to the first slash. Pure.

Not here: what is done with a name (`restow.apimachinery.apply`), and whether one is right
(`parameters`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from restow.apimachinery.apply.entries import MANAGER_LENGTH_MAX, Manager
from restow.request.context import Context

_AGENTS_KEPT_MAX: Final = 1_024
_AGENT_KEPT_LENGTH_MAX: Final = 256


def manager_of(context: Context) -> Manager:
    """Who has sent a request, and by which path it writes."""
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
    """The product that a User-Agent begins with, as far as it can be printed and is not long."""
    name, size = "", 0
    for character in agent.partition("/")[0]:
        if not character.isprintable():
            continue
        size += len(character.encode())
        if size > MANAGER_LENGTH_MAX:
            break
        name += character
    return name
