"""The bounded queue: limits, order, fairness, closing, and cancellation without loss."""

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.aio import BoundedQueue, QueueClosed, QueueFull, SimulatedClock


async def settle() -> None:
    await SimulatedClock().settle()


async def start(coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    task = asyncio.create_task(coroutine)
    await settle()
    return task


def queue_of(*items: int, items_max: int = 3) -> BoundedQueue[int]:
    queue = BoundedQueue[int]("numbers", items_max=items_max)
    for item in items:
        queue.put_nowait(item)
    return queue


async def test_the_limit_holds() -> None:
    """One item more than the limit is rejected with the queue's name; a get makes space again."""
    queue = queue_of(1, 2, 3)
    with pytest.raises(QueueFull, match="numbers: 3 of 3"):
        queue.put_nowait(4)
    assert await queue.get() == 1
    queue.put_nowait(4)
    assert len(queue) == 3


@pytest.mark.parametrize("items_max", [0, -1])
async def test_limits_are_positive(items_max: int) -> None:
    """A queue or batch with a limit of 0 is rejected."""
    with pytest.raises(ValueError, match="at least 1"):
        BoundedQueue[int]("nothing", items_max=items_max)
    with pytest.raises(ValueError, match="at least 1"):
        await queue_of(1).get_batch(items_max)


async def test_a_batch_takes_available_items() -> None:
    """A batch is all available items, oldest first, up to its size."""
    queue = queue_of(1, 2, 3, 4, 5, items_max=9)
    assert await queue.get_batch(3) == [1, 2, 3]
    assert await queue.get_batch(3) == [4, 5]


async def test_a_batch_waits_for_the_first_item() -> None:
    """Without items a batch waits, and then takes all that arrive in the same iteration."""
    queue = queue_of()
    task = await start(queue.get_batch(9))
    assert not task.done()
    queue.put_nowait(1)
    queue.put_nowait(2)
    await settle()
    assert task.result() == [1, 2]


async def test_getters_are_served_in_order() -> None:
    """The consumer that has waited longest gets the oldest item; new ones cannot overtake it."""
    queue = queue_of()
    waiting = [await start(queue.get()) for _ in range(3)]
    queue.put_nowait(1)
    late = asyncio.create_task(queue.get())
    queue.put_nowait(2)
    queue.put_nowait(3)
    await settle()
    assert [task.result() for task in waiting] == [1, 2, 3]
    assert not late.done()
    queue.put_nowait(4)
    assert await late == 4


async def test_putters_are_served_in_order() -> None:
    """Producers get space in order of arrival, and put_nowait does not take it from them."""
    queue = queue_of(1, items_max=1)
    putters = [await start(queue.put(item)) for item in (2, 3)]
    assert await queue.get() == 1
    with pytest.raises(QueueFull):
        queue.put_nowait(99)
    assert [await queue.get(), await queue.get()] == [2, 3]
    await asyncio.gather(*putters)


async def test_a_batch_makes_room_for_all() -> None:
    """When a batch frees several places, as many waiting producers continue."""
    queue = queue_of(1, 2, 3)
    putters = [await start(queue.put(item)) for item in (4, 5, 6, 7)]
    assert await queue.get_batch(3) == [1, 2, 3]
    await settle()
    assert [task.done() for task in putters] == [True, True, True, False]
    assert await queue.get_batch(9) == [4, 5, 6]
    await putters[3]


async def test_a_cancelled_getter_loses_nothing() -> None:
    """A consumer that is cancelled just after it was resumed leaves the item to the next."""
    queue = queue_of()
    first, second = await start(queue.get()), await start(queue.get())
    queue.put_nowait(1)
    first.cancel()
    await settle()
    assert first.cancelled()
    assert second.result() == 1


async def test_a_cancelled_putter_takes_no_room() -> None:
    """A producer that is cancelled just after it was resumed leaves the space to the next."""
    queue = queue_of(1, items_max=1)
    first, second = await start(queue.put(2)), await start(queue.put(3))
    assert await queue.get() == 1
    first.cancel()
    await settle()
    assert first.cancelled()
    assert second.done()
    assert await queue.get() == 3


async def test_close_drains_then_ends() -> None:
    """After close the remaining items are returned; then consumers end, and no item is accepted."""
    queue = queue_of(1, 2)
    queue.close()
    assert queue.closed
    with pytest.raises(QueueClosed):
        queue.put_nowait(3)
    with pytest.raises(QueueClosed):
        await queue.put(3)
    assert [await queue.get(), await queue.get()] == [1, 2]
    for _ in range(2):
        with pytest.raises(QueueClosed, match="numbers"):
            await queue.get()


async def test_close_ends_all_waiting_tasks() -> None:
    """All waiting tasks end when the queue closes, not only the first."""
    empty, full = queue_of(), queue_of(1, items_max=1)
    tasks = [await start(empty.get()) for _ in range(3)]
    tasks += [await start(full.put(item)) for item in (2, 3, 4)]
    empty.close()
    full.close()
    await settle()
    assert [type(task.exception()) for task in tasks] == [QueueClosed] * 6
    assert await full.get() == 1


STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "try", "get", "batch", "cancel"]), st.integers(0, 9)),
    max_size=60,
)


@given(STEPS, st.integers(1, 4))
def test_nothing_is_lost_doubled_or_reordered(steps: list[tuple[str, int]], limit: int) -> None:
    """For any mix of puts, gets, batches and cancellations the queue is a plain FIFO."""
    asyncio.run(against_a_plain_fifo(steps, limit))


async def against_a_plain_fifo(steps: list[tuple[str, int]], limit: int) -> None:
    queue = BoundedQueue[int]("numbers", items_max=limit)
    received: list[int] = []
    accepted: list[int] = []
    waiting: deque[asyncio.Task[None]] = deque()

    async def put(item: int) -> None:
        await queue.put(item)
        accepted.append(item)

    async def take(items_max: int) -> None:
        received.extend(await queue.get_batch(items_max))

    for number, (step, argument) in enumerate(steps):
        if step == "put":
            waiting.append(asyncio.create_task(put(number)))
        elif step == "try" and queue._putters.is_open():
            queue.put_nowait(number)
            accepted.append(number)
        elif step in {"get", "batch"}:
            waiting.append(asyncio.create_task(take(1 if step == "get" else argument + 1)))
        elif step == "cancel" and waiting:
            waiting[argument % len(waiting)].cancel()
        if argument % 2:
            await settle()
        assert len(queue) <= limit
    await settle()
    queue.close()
    await settle()
    received.extend([await queue.get() for _ in range(len(queue))])
    assert received == accepted
    assert all(task.done() for task in waiting)
    await asyncio.gather(*waiting, return_exceptions=True)
