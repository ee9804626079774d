"""Servers with a store of their own, which say how they write in another store: every order.

Two stores, so no transaction spans both, and the question is in which order to do things in them.
A server that registers has four steps, and may stop for ever between any two: hold, send, hear,
open. What it sends may arrive at any time later, more than once, also when it is dead. A peer on
the own store takes the server out there in two steps, and withdraws its entry from the main store
by what it has read, at any time later.

What must hold: no write commits in a version that is not the server's entry in the main store at
that moment. Then none differs from what is agreed there, since an agreement is what all entries
say. Another server's entry takes no part: it can only prevent an agreement.

Versions are small numbers, one for each registration in turn. As in the code, words are numbered:
a hold takes the next number of the own store, and so does reading that a key is absent.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

NONE: Final = 0
REGISTRATIONS_MAX: Final = 3
VERSIONS: Final = (NONE, 1, 2, 1)
"""What the registrations of one server are for, in turn: up, and down again."""
FOR_GOOD: Final = 99

# What a registration has done so far.
IDLE: Final = "idle"
HELD: Final = "held"
SENT: Final = "sent"
HEARD: Final = "heard"


class Word(NamedTuple):
    """A report, or a withdrawal if it is for no version, somewhere between the stores."""

    version: int
    sequence: int


class State(NamedTuple):
    """The own store, the main store, the server, and what is on its way."""

    clock: int = 0
    """The revision of the own store, as far as somebody remembers it."""
    member: bool = True
    """The server key is there."""
    encoder: int = NONE
    """The version in the encoder key; none: it is absent, or held."""
    held: int = 0
    """The hold that the encoder key is of; 0: it is not held."""
    entry: Word | None = None
    """In the main store."""
    registration: int = 0
    step: str = IDLE
    number: int = 0
    """The sequence of the registration under way."""
    words: frozenset[Word] = frozenset()
    taken: frozenset[int] = frozenset()
    """The sequences of reports that the main store has taken: each may be heard of, late."""
    writes: frozenset[int] = frozenset()
    """Versions in which writes may be in flight."""
    broken: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What can be done wrongly."""

    holds: bool = True
    """The old encoder key is closed before anything is reported."""
    reports_first: bool = True
    """Opened after the report was taken, not before."""
    open_compares: bool = True
    """Opened only if the encoder key is the held one of this very registration, and the server is
    still a member."""
    numbered: bool = True
    """The main store refuses words that are older than what it knows."""
    waits_for_encoder: bool = True
    """The dead are withdrawn when their encoder key is gone, too; not just their server key."""
    waits_for_death: bool = True
    """Whose server key is there is not withdrawn for good, whatever else is missing."""


class Remote:
    """All that can happen."""

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
        """The server itself."""
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
            word = Word(version, state.number)
            sent = state._replace(words=state.words | {word}, step=SENT)
            if sent != state:
                yield "sends its report", sent
            if state.step == SENT and state.number in state.taken:
                yield "hears that it was taken", state._replace(step=HEARD)
            if state.step == SENT and state.registration < REGISTRATIONS_MAX:
                yield "gives up, and begins anew", state._replace(step=IDLE)
        elif state.step == HEARD:
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
        """A peer that takes the server for dead; it may be paused only."""
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
        """Somebody reads the own store, and sends what follows from it."""
        rules = self.rules
        is_dead = not state.member and (not state.encoder or not rules.waits_for_encoder)
        if is_dead or (not state.encoder and not rules.waits_for_death):
            word = Word(NONE, FOR_GOOD)
        elif not state.encoder:
            word = Word(NONE, state.clock)
        else:
            return
        if word not in state.words and state.registration:
            yield "a withdrawal is sent", state._replace(words=state.words | {word})

    def _main_store(self, state: State) -> Iterable[tuple[str, State]]:
        """A word arrives; it may arrive again."""
        entry = state.entry
        for word in sorted(state.words):
            is_older = entry is not None and self.rules.numbered and word.sequence < entry.sequence
            if word.version:
                if not is_older:
                    taken = state._replace(entry=word, taken=state.taken | {word.sequence})
                    yield f"the report of v{word.version} arrives", taken
            elif entry is not None and not is_older:
                yield "the withdrawal arrives", state._replace(entry=None)


def sought(state: State) -> str | None:
    return state.broken or None
