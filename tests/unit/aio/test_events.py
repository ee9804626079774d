"""Event channels."""

from restow.aio.events import EventChannel


def test_all_subscribers_are_called_in_their_order() -> None:
    """Every subscriber gets the arguments of an event; events before its subscription are not
    sent."""
    channel, seen = EventChannel[[str]](), list[str]()
    channel.emit("before")
    channel.subscribe(lambda text: seen.append(f"first {text}"))
    channel.subscribe(lambda text: seen.append(f"second {text}"))
    channel.emit("now")
    assert seen == ["first now", "second now"]
