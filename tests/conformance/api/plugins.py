"""An admission plug-in for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from restow.admission import Attributes, WriteOf
from restow.apimachinery import status


class Plugin:
    """Records its reviews, and refuses objects with a given name."""

    def __init__(self, refused: str = "", *, waits: bool = False) -> None:
        self.asked: list[Attributes] = []
        self.refused = refused
        self.waits = waits

    def concerns(self, _write: WriteOf) -> bool:
        return True

    def review(self, attributes: Attributes) -> Awaitable[None] | None:
        self.asked.append(attributes)
        if self.waits:
            return self._later(attributes)
        self._judge(attributes)
        return None

    async def _later(self, attributes: Attributes) -> None:
        await asyncio.sleep(0)
        self._judge(attributes)

    def _judge(self, attributes: Attributes) -> None:
        if attributes.name == self.refused:
            raise status.forbidden(
                "not that one",
                resource=attributes.resource.kind.group_resource,
                name=attributes.name,
            )

    def last(self) -> tuple[str, str, str]:
        found = self.asked[-1]
        return found.operation, found.subresource, found.name
