"""Event channels."""

from restow.aio.events import EventChannel


def test_all_subscribers_are_called_in_their_order() -> None:
    """An event reaches everyone, with what was said; nobody hears of earlier ones."""
    channel, seen = EventChannel[[str]](), list[str]()
    channel.emit("before")
    channel.subscribe(lambda said: seen.append(f"first {said}"))
    channel.subscribe(lambda said: seen.append(f"second {said}"))
    channel.emit("now")
    assert seen == ["first now", "second now"]
