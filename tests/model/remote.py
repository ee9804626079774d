"""Servers with their own store, which report their encoding version to another store: every order.

With two stores no transaction spans both, so the order of the operations matters. A server that
registers has four steps, and may stop permanently between any two: hold, send, receive the reply,
open. Its messages may arrive at any later time, repeatedly, also after its exit. A peer on the own
store removes the server there in two steps, and withdraws its entry from the main store according
to
what it has read, at any later time.

Invariant: no write commits in a version other than the server's entry in the main store at that
time.
Then none differs from the agreement there, since an agreement requires equal entries. Entries of
other servers do not matter: they can only prevent an agreement.

Versions are small numbers, one for each registration in order. As in the code, messages are
numbered:
a hold takes the next number of the own store, and so does reading that a key is absent.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

NONE: Final = 0
REGISTRATIONS_MAX: Final = 3
VERSIONS: Final = (NONE, 1, 2, 1)
"""The target versions of one server's registrations, in order: an upgrade and a downgrade."""
FOR_GOOD: Final = 99

# The completed steps of a registration.
IDLE: Final = "idle"
HELD: Final = "held"
SENT: Final = "sent"
NOTIFIED: Final = "notified"


class Message(NamedTuple):
    """A report, or a withdrawal if it has no version, in transit between the stores."""

    version: int
    sequence: int


class State(NamedTuple):
    """The own store, the main store, the server, and the messages in transit."""

    clock: int = 0
    """The revision of the own store, as far as it is remembered anywhere."""
    member: bool = True
    """The server key exists."""
    encoder: int = NONE
    """The version in the encoder key; none: it is absent, or held."""
    held: int = 0
    """The hold of the encoder key; 0: it is not held."""
    entry: Message | None = None
    """The entry in the main store."""
    registration: int = 0
    step: str = IDLE
    number: int = 0
    """The sequence of the current registration."""
    messages: frozenset[Message] = frozenset()
    taken: frozenset[int] = frozenset()
    """The sequences of reports that the main store has accepted: each reply may arrive late."""
    writes: frozenset[int] = frozenset()
    """Versions in which writes may be in flight."""
    broken: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules that a mistake can omit."""

    holds: bool = True
    """The old encoder key is closed before anything is reported."""
    reports_first: bool = True
    """Opened after the report was accepted, not before."""
    open_compares: bool = True
    """Opened only if the encoder key is the held one of this registration, and the server is still
    a
    member."""
    numbered: bool = True
    """The main store rejects messages older than its state."""
    waits_for_encoder: bool = True
    """An expired server is withdrawn only after its encoder key is removed, not only its server
    key."""
    waits_for_exit: bool = True
    """A server whose server key exists is not withdrawn permanently, whatever else is missing."""


class Remote:
    """All possible actions."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def successors(self, state: State) -> Iterable[tuple[str, State]]:
        if state.broken:
            return
        yield from self._register(state)
        yield from self._own_store(state)
        yield from self._main_store(state)
        for version in sorted(state.writes):
            if state.encoder == version and not state.held:
                said = NONE if state.entry is None else state.entry.version
                if said != version:
                    yield (
                        f"a write in v{version} commits, said is v{said}",
                        state._replace(broken="a write differs from what is said"),
                    )

    def _register(self, state: State) -> Iterable[tuple[str, State]]:
        """Actions of the server itself."""
        rules, version = self.rules, VERSIONS[state.registration]
        if state.step == IDLE and state.registration < REGISTRATIONS_MAX and state.member:
            clock, following = state.clock + 1, VERSIONS[state.registration + 1]
            begun = state._replace(
                clock=clock, registration=state.registration + 1, step=HELD, number=clock
            )
            if rules.holds:
                begun = begun._replace(held=clock, encoder=following)
            if not rules.reports_first:
                begun = self._opened(begun, following)._replace(step=HELD)
            yield f"holds, for v{following}", begun
        elif state.step in (HELD, SENT):
            message = Message(version, state.number)
            sent = state._replace(messages=state.messages | {message}, step=SENT)
            if sent != state:
                yield "sends its report", sent
            if state.step == SENT and state.number in state.taken:
                yield "is notified that it was taken", state._replace(step=NOTIFIED)
            if state.step == SENT and state.registration < REGISTRATIONS_MAX:
                yield "gives up, and begins anew", state._replace(step=IDLE)
        elif state.step == NOTIFIED:
            if not rules.reports_first:
                yield "is done", state._replace(step=IDLE)
            elif self._may_open(state):
                yield "opens", self._opened(state, version)._replace(step=IDLE)

    def _may_open(self, state: State) -> bool:
        if not self.rules.open_compares:
            return True
        return state.member and (state.held == state.number or not self.rules.holds)

    def _opened(self, state: State, version: int) -> State:
        return state._replace(encoder=version, held=0, writes=state.writes | {version})

    def _own_store(self, state: State) -> Iterable[tuple[str, State]]:
        """Actions of a peer that considers the server expired; it may only be paused."""
        if state.member:
            yield "the peer deletes the server key", state._replace(member=False)
        elif state.encoder:
            yield (
                "the peer deletes the encoder key",
                state._replace(encoder=NONE, held=0),
            )
        if state.member and state.encoder:
            clock = state.clock + 1
            yield (
                "the server takes its entry and encoder key out",
                state._replace(clock=clock, encoder=NONE, held=0),
            )
        yield from self._withdrawals(state)

    def _withdrawals(self, state: State) -> Iterable[tuple[str, State]]:
        """A peer reads the own store, and sends the resulting messages."""
        rules = self.rules
        has_ended = not state.member and (not state.encoder or not rules.waits_for_encoder)
        if has_ended or (not state.encoder and not rules.waits_for_exit):
            message = Message(NONE, FOR_GOOD)
        elif not state.encoder:
            message = Message(NONE, state.clock)
        else:
            return
        if message not in state.messages and state.registration:
            yield "a withdrawal is sent", state._replace(messages=state.messages | {message})

    def _main_store(self, state: State) -> Iterable[tuple[str, State]]:
        """A message arrives; it may arrive again."""
        entry = state.entry
        for message in sorted(state.messages):
            is_older = (
                entry is not None and self.rules.numbered and message.sequence < entry.sequence
            )
            if message.version:
                if not is_older:
                    taken = state._replace(entry=message, taken=state.taken | {message.sequence})
                    yield f"the report of v{message.version} arrives", taken
            elif entry is not None and not is_older:
                yield "the withdrawal arrives", state._replace(entry=None)


def sought(state: State) -> str | None:
    return state.broken or None
