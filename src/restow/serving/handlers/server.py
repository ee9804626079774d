"""The parts of a server that handlers use."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from restow.resources.catalog import Catalog
from restow.resources.store import ResourceStore
from restow.runtime import Runtime, Tasks
from restow.serving.admission import Admission
from restow.serving.continue_tokens import ContinueTokens

if TYPE_CHECKING:
    from restow.serving.handlers.reviews import Judge
    from restow.serving.handlers.watching import FanOut


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What every handler may need."""

    catalog: Catalog
    store: ResourceStore
    tokens: ContinueTokens
    runtime: Runtime
    tasks: Tasks
    judge: Judge
    """Answers questions about users and rights."""
    admission: tuple[Admission, ...] = ()
    """Asked about each write, in this order."""
    collects_dependents: bool = True
    """Whether somebody looks after dependents. If not, an owner does not wait for that."""
    fan_outs: dict[str, FanOut] = field(default_factory=dict)
    """By root of keys: the watchers of each resource."""
