"""The probe reports a problem of the store, and clears it when the store works again."""

import logging

import pytest

from restow.aio import Runtime, SimulatedClock
from restow.apiserver.storage_probe import TIMEOUT_SECONDS, StorageProbe
from restow.storage.errors import Unavailable
from restow.storage.interface import Revision
from restow.storage.memory import MemoryStorage


class Moody(MemoryStorage):
    """A store that responds as configured."""

    mood = "well"

    async def revision(self) -> Revision:
        if self.mood == "ill":
            raise Unavailable("no disk")
        if self.mood == "silent":
            await clock.sleep(10 * TIMEOUT_SECONDS)
        return await super().revision()


clock = SimulatedClock()


async def test_probe(caplog: pytest.LogCaptureFixture) -> None:
    """A failing or unresponsive store fails the check; a working one passes it. Each change is
    logged once."""
    caplog.set_level(logging.INFO)
    storage = Moody()
    probe = StorageProbe(storage, Runtime.simulated(1, clock=clock).clock)
    await probe.step()
    assert probe.check() is None
    storage.mood = "ill"
    for _ in range(3):
        await probe.step()
    assert probe.check() == "no disk"
    storage.mood = "silent"
    await clock.run_until_done(probe.step())
    assert probe.check() == "no response within 5.0 s"
    storage.mood = "well"
    await probe.step()
    assert probe.check() is None
    assert [record.getMessage() for record in caplog.records] == [
        "the store is unavailable: no disk",
        "the store is unavailable: no response within 5.0 s",
        "the store is available again",
    ]
