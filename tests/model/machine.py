"""Several workers, producers and promoters call the scripts in any order; after each call the queue must be as the book says.

Time stands still and is moved by rules; a lease runs out because a rule says so (its idle time is set). A worker keeps what
it was ever given, and may settle any of it, however late.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from firetime.store.replies import StaleCall
from tests.edges.driver import HOUR_MS, Answer, Ended, Given, Sent
from tests.model.actions import action, actions_of, possible
from tests.model.book import LETTERS, Book, Mail, Terms, terms_of
from tests.model.compare import differences

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine, Sequence

    from tests.edges.driver import Claimed, Driver
    from tests.edges.look import Look

T = TypeVar("T")

LEASE_MS = 60_000
"""Shorter than `Driver.grow_old` makes a lease, longer than any example takes."""
GRACE_MS = 1000
START_US = 1_900_000_000_000_000 + 123
CONSUMERS = ("ada", "bob", "cyd")
KEPT = 40
"""Deliveries that the workers remember."""

indexes = st.integers(0, 60)
consumers = st.sampled_from(CONSUMERS)
letters = st.sampled_from(LETTERS)
orders = st.sampled_from(["hnl", "hnl", "nlh", "lhn"])
holds_ms = st.sampled_from([0, 1, 2000, HOUR_MS])
delays_us = st.sampled_from([0, 1, 999, 1000, 1500, 1_000_000, 1_000_000, 3_600_000_000])
settled = st.sampled_from(["yes", "yes", "perhaps", "no"])
"""Whether the delivery that is settled still holds."""
few = st.lists(indexes, min_size=1, max_size=3)


@st.composite
def messages(draw: st.DrawFn) -> tuple[str, str, dict[str, Any], Terms]:
    """Explicit id ("": none), lane, time and conflict, and what the record says."""
    key = draw(st.sampled_from(["", "", "k1", "k2"]))
    explicit = draw(st.sampled_from(["", "", "", "a", "b", "c"]))
    terms = Terms(key, draw(holds_ms) if key else 0, HOUR_MS if explicit and draw(st.booleans()) else 0)
    options: dict[str, Any] = {"on_conflict": draw(st.sampled_from(["raise", "replace", "replace"]))}
    match draw(st.sampled_from(["", "", "in", "in", "at"])):
        case "in":
            options["in_us"] = draw(delays_us)
        case "at":
            options["at_ms"] = draw(st.sampled_from([-1, 0, 1, 1000, HOUR_MS]))
    return explicit, draw(letters), options, terms


@dataclass(frozen=True, slots=True)
class Handed:
    """A delivery that a worker was given, and what it then knew."""

    consumer: str
    one: Given
    known: bool
    """False: the reply of the claim was lost."""


class AnyOrder(RuleBasedStateMachine):
    """One queue; `driver` and `loop` are the test's."""

    def __init__(self, driver: Driver, loop: asyncio.Runner) -> None:
        super().__init__()
        self.q = driver
        self.book = Book(START_US)
        self.handed: list[Handed] = []
        self.sleeps: dict[str, tuple[int, str]] = {}
        """Promoter -> the head it sleeps for, and the news it knows."""
        self.swept = False
        """Somebody has swept within the interval."""
        self.numbers = 0
        self.calls: dict[str, list[tuple[int, list[Sent], list[Answer]]]] = {}
        self.records = 0
        self._loop = loop
        self._set_clock()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run(work)

    def _set_clock(self) -> None:
        self.q.server.shift.stopped_us = self.book.now_us

    @rule(data=st.data())
    def next_step(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(possible(ACTIONS, self)).map(lambda drawn: drawn.name), label="action")
        chosen = next(each for each in ACTIONS if each.name == one)
        getattr(self, one)(**data.draw(chosen.arguments, label="with"))

    # ------------------------------------------------------------------------------------------------ none -> ready

    @action(
        5,
        drawn=st.lists(messages(), min_size=1, max_size=4),
        client=st.sampled_from(["one", "two"]),
        most=st.sampled_from([0, 0, 0, 3, 8]),
    )
    def dispatch(self, drawn: list[tuple[str, str, dict[str, Any], Terms]], client: str, most: int) -> None:
        batch = [self._sent(*one) for one in drawn]
        self.numbers += 1
        number = self.numbers
        expected = self.book.dispatch(batch, most)
        assert self.run(self.q.dispatch(*batch, number=number, client=client, max_length=most)) == expected
        self.calls[client] = [*self.calls.get(client, []), (number, batch, expected)][-3:]

    def _sent(self, explicit: str, letter: str, options: dict[str, Any], terms: Terms) -> Sent:
        self.records += 1
        options = dict(options)
        if "at_ms" in options:
            options["at_ms"] += self.book.now_ms
        more = {"key": terms.key, "hold_ms": terms.hold_ms, "explicit": bool(explicit), **options}
        return Sent(id=explicit or f"m{self.records}", record=terms.record(self.records), letter=letter, **more)

    @action(2, when=lambda self: self.calls, index=indexes, back=st.integers(0, 2), most=st.sampled_from([0, 3]))
    def a_dispatch_comes_again(self, index: int, back: int, most: int) -> None:
        """Its reply was lost, or it was delayed until later ones had come."""
        client = pick(sorted(self.calls), index)
        sent = self.calls[client]
        number, batch, answers = sent[-1 - back % len(sent)]
        again = self.q.dispatch(*batch, number=number, client=client, max_length=most)
        if number == sent[-1][0]:
            assert self.run(again) == answers
        else:
            with pytest.raises(StaleCall):
                self.run(again)

    @action(letter=letters)
    def somebody_else_writes(self, letter: str) -> None:
        entry = self.run(self.q.raw.xadd(self.q.keys.lanes[letter], {"x": "y"})).decode()
        self.book.intrude(letter, entry, b"1:x,1:y,")

    # --------------------------------------------------------------------------------------------- ready -> running

    @action(
        6,
        consumer=consumers,
        free=st.sampled_from([1, 2, 3, 10]),
        order=orders,
        sweep=st.booleans(),
        budget=st.sampled_from([1 << 20, 1 << 20, 60]),
        lost=st.sampled_from([False, False, False, True]),
        by_bell=st.booleans(),
    )
    def claim(self, consumer: str, free: int, order: str, sweep: bool, budget: int, lost: bool, by_bell: bool) -> None:
        if by_bell:
            self.run(self.q.raw.lpop(self.q.keys.bell))
        sweeps = sweep and not self.swept and not self.book.paused
        due = list(self.book.claimable(order, sweeps=sweeps))
        before = self.run(self.q.look())
        options: dict[str, Any] = {"free": free, "order": order, "sweep": sweep, "budget": budget}
        told = self.run(self.q.claim(consumer, lease_ms=LEASE_MS, sweep_ms=HOUR_MS, **options))
        assert told.now_us == self.book.now_us
        assert told.stale == 0
        assert (told.note == "paused") == self.book.paused
        self._check_given(told, due, free, budget)
        for mail, one in zip(due, told.given, strict=False):
            self._hand(mail, consumer, one, before, lost=lost)
        if sweeps:
            self._check_the_gate(left=any(mail.expired for mail in self.book.at("running")))

    @staticmethod
    def _check_given(told: Claimed, due: list[Mail], free: int, budget: int) -> None:
        assert told.ids == [mail.id for mail in due[: len(told.given)]]
        assert len(told.given) <= free
        if len(told.given) < min(free, len(due)):
            assert sum(len(one.record or b"") for one in told.given) >= budget

    def _hand(self, mail: Mail, consumer: str, one: Given, before: Look, *, lost: bool) -> None:
        self.book.hand_out(mail, consumer)
        if not mail.entry:
            mail.entry = one.entry
        kept = before.state.get(mail.id)
        expected = Given(
            mail.letter, mail.entry, mail.count, mail.id, mail.record, kept, mail.fire_ms, cancel_asked=mail.asked
        )
        assert one == expected
        assert mail.fire_ms is None or mail.fire_ms <= self.book.now_ms, "given early"
        fence = self.book.counters(kept, mail)[1]
        if not lost:
            assert fence > mail.fence, "the fence that user code sees must grow"
            mail.fence = fence
        self.handed = [*self.handed, Handed(consumer, one, not lost)][-KEPT:]

    def _check_the_gate(self, *, left: bool) -> None:
        shut = self.run(self.q.raw.exists(self.q.keys.swept)) == 1
        assert not (left and shut), "more orphans than slots, and nobody may look for an interval"
        self.swept = shut

    @action()
    def a_sweep_interval_passes(self) -> None:
        self.run(self.q.raw.delete(self.q.keys.swept))
        self.swept = False

    @action(when=lambda self: self.book.at("running"), consumer=consumers)
    def a_worker_freezes(self, consumer: str) -> None:
        """Or dies: until somebody sweeps nobody can tell."""
        self.run(self.q.grow_old(consumer=consumer))
        for mail in self.book.at("running"):
            mail.expired |= mail.consumer == consumer

    @action(
        4,
        when=lambda self: self.book.at("running") and not self.book.paused,
        by=consumers,
        index=indexes,
        free=st.sampled_from([1, 10]),
    )
    def a_lease_runs_out_and_is_taken(self, by: str, index: int, free: int) -> None:
        """By another, or by the very worker that lost it."""
        self.a_worker_freezes(pick(self.book.at("running"), index).consumer)
        self.a_sweep_interval_passes()
        self.claim(by, free, "hnl", sweep=True, budget=1 << 20, lost=False, by_bell=False)

    # ------------------------------------------------------------------------------------------------------ settling

    def _batch(self, holds: str, index: int, others: Sequence[int]) -> tuple[str, str, list[Given]]:
        """Deliveries of one worker in one lane, in stream order, each once; the first holds, does not, or may."""
        wanted = {"no": [False], "yes": [True], "perhaps": [True, False]}[holds]
        found = [each for each in self.handed if bool(self.book.held(each.consumer, each.one)) in wanted]
        if not found:
            return "", "", []
        first = pick(found, index)
        like = [
            each.one for each in self.handed if (each.consumer, each.one.letter) == (first.consumer, first.one.letter)
        ]
        chosen = {(one.entry, one.deliveries): one for one in (first.one, *(pick(like, i) for i in others))}
        return first.consumer, first.one.letter, sorted(chosen.values(), key=in_stream)

    def _sorted_out(self, consumer: str, batch: Sequence[Given]) -> tuple[list[tuple[Mail, Given]], list[str]]:
        """Those that hold, and the ids that must be refused."""
        held = [(mail, one) for one in batch if (mail := self.book.held(consumer, one))]
        return held, [one.id for one in batch if not self.book.held(consumer, one)]

    @action(3, when=lambda self: self.handed, holds=settled, index=indexes, others=few, cancelled=st.booleans())
    def complete(self, holds: str, index: int, others: list[int], cancelled: bool) -> None:
        consumer, letter, batch = self._batch(holds, index, others)
        if not batch:
            return
        held, _ = self._sorted_out(consumer, batch)
        outcome = "cancelled" if cancelled else "done"
        plain = [one for one in batch if not cancelled and terms_of(one.record) == Terms()]
        rest = [one for one in batch if one not in plain]
        refused = [one.id for one in (*plain, *rest) if not self.book.held(consumer, one)]
        not_freed = [mail.id for mail, one in held if not self.book.complete(mail, terms_of(one.record), outcome)]
        ended = [self._ended(one, outcome) for one in rest]
        told = self.run(self.q.complete(*plain, others=ended, letter=letter, consumer=consumer))
        assert (told[0], sorted(told[1])) == (refused, sorted(not_freed))

    @staticmethod
    def _ended(one: Given, outcome: str) -> Ended:
        terms = terms_of(one.record)
        return Ended(held=one, outcome=outcome, key=terms.key, remember_ms=terms.remember_ms)

    @action(3, when=lambda self: self.handed, holds=settled, index=indexes, delay_us=delays_us)
    def retry(self, holds: str, index: int, delay_us: int) -> None:
        consumer, letter, batch = self._batch(holds, index, [])
        for one in batch:
            terms, state = terms_of(one.record), state_after(one, failed=True)
            held, refused = self._sorted_out(consumer, [one])
            cancelled = [mail.id for mail, _ in held if self.book.retry(mail, terms, delay_us) == "cancelled"]
            options: dict[str, Any] = {"key": terms.key, "hold_ms": terms.hold_ms, "letter": letter}
            told = self.run(self.q.retry(one, delay_us=delay_us, state=state, consumer=consumer, **options))
            assert told == (refused, cancelled)

    @action(2, when=lambda self: self.handed, holds=settled, index=indexes)
    def bury(self, holds: str, index: int) -> None:
        consumer, letter, batch = self._batch(holds, index, [])
        for one in batch:
            terms = terms_of(one.record)
            held, refused = self._sorted_out(consumer, [one])
            for mail, _ in held:
                self.book.bury(mail, terms)
            state = state_after(one, failed=True)
            assert self.run(self.q.bury(one, state=state, key=terms.key, letter=letter, consumer=consumer)) == refused

    @action(4, when=lambda self: self.handed, holds=settled, index=indexes, others=few, started=st.booleans())
    def release(self, holds: str, index: int, others: list[int], started: bool) -> None:
        consumer, letter, batch = self._batch(holds, index, others)
        for one in batch[:1]:
            fire_ms = one.fire_ms or 0
            batch = [other for other in batch if (other.fire_ms or 0) == fire_ms]
        if not batch:
            return
        fire_ms = batch[0].fire_ms or 0
        held, refused = self._sorted_out(consumer, batch)
        for mail, _ in held:
            self._give_back(mail, fire_ms or None, started=started)
        told = self.run(self.q.release(*batch, started=started, fire_ms=fire_ms, letter=letter, consumer=consumer))
        assert told == refused

    @action(3, consumer=consumers, forgets=st.booleans(), gives_back=st.booleans())
    def renew(self, consumer: str, forgets: bool, gives_back: bool) -> None:
        """With what the worker believes to run; what it does not know of, and is old, comes back as unknown."""
        mine = [each for each in self.handed if each.consumer == consumer]
        known = {each.one.place: each.one for each in mine if each.known and not forgets}
        unique = [
            (terms.key, one.id, terms.hold_ms) for one in known.values() if (terms := terms_of(one.record)).hold_ms
        ]
        held = {one.place: mail for one in known.values() if (mail := self.book.held(consumer, one))}
        old = {
            mail.place: mail
            for mail in self.book.at("running")
            if mail.consumer == consumer and mail.place not in known and mail.expired
        }
        told = self.run(self.q.renew(*known.values(), unique=unique, consumer=consumer, unknown_ms=LEASE_MS))
        assert told.lost == known.keys() - held.keys()
        asked = {mail.id for mail in held.values() if mail.asked}
        assert asked <= told.to_cancel <= {one.id for one in known.values()}
        found = {(one.place, one.deliveries, one.id) for one in told.unknown}
        assert found == {(place, mail.count, mail.id) for place, mail in old.items()}
        for mail in held.values():
            mail.expired = False
        for key, id, hold_ms in unique:
            if self.book.unique.get(key, ("", 0))[0] == id:
                self.book.hold(key, id, self.book.now_ms, hold_ms)
        for one in told.unknown if gives_back else ():
            self._give_back(old[one.place], None, started=False)
            assert self.run(self.q.release(one, letter=one.letter, consumer=consumer)) == []

    def _give_back(self, mail: Mail, fire_ms: int | None, *, started: bool) -> None:
        self.book.release(mail, fire_ms, started=started)
        # what was not started did not see its fence, which may come again
        mail.fence = min(mail.fence, mail.seen)

    # ------------------------------------------------------------------------------------------------------- control

    def _some_id(self, index: int) -> str:
        known = [*self.book.mails, *self.book.ended, "nobody"]
        return pick([id for id in known if id not in self.book.mails or self.book.mails[id].where != "foreign"], index)

    def _terms(self, id: str) -> Terms:
        return terms_of(self.book.mails[id].record) if id in self.book.mails else Terms()

    @action(2, index=indexes, remember=st.booleans())
    def cancel(self, index: int, remember: bool) -> None:
        id = self._some_id(index)
        key = self._terms(id).key
        expected = self.book.cancel(id, key, remember=remember)
        assert self.run(self.q.cancel(id, key=key, remember_ms=HOUR_MS if remember else 0)) == expected

    @action(2, index=indexes, delay_us=delays_us, at=st.booleans())
    def reschedule(self, index: int, delay_us: int, at: bool) -> None:
        """With no delay it is what `run_now` does."""
        id = self._some_id(index)
        terms = self._terms(id)
        fire_ms = -(-(self.book.now_us + delay_us) // 1000) if delay_us else self.book.now_ms
        when: dict[str, int] = {"at_ms": fire_ms - (5 if delay_us == 0 else 0)} if at else {"in_us": delay_us}
        expected = self.book.reschedule(id, fire_ms, terms)
        assert self.run(self.q.reschedule(id, key=terms.key, hold_ms=terms.hold_ms, **when)) == expected

    @action(when=lambda self: self.book.mails, index=indexes)
    def ask(self, index: int) -> None:
        id = self._some_id(index)
        mail, told = self.book.mails.get(id), self.run(self.q.status(id))
        if mail is None:
            assert told.status == ("ended" if id in self.book.ended else "unknown")
        else:
            assert (told.status, told.record) == (mail.where, mail.record)
            assert told.deliveries == (mail.count if mail.where == "running" else 0)

    @action(3, when=lambda self: self.book.at("dead"), index=indexes, again=st.booleans())
    def replay(self, index: int, again: bool) -> None:
        mail = pick(self.book.at("dead"), index)
        terms = terms_of(mail.record)
        self.numbers += 1
        options: dict[str, Any] = {"letter": mail.letter, "key": terms.key, "hold_ms": terms.hold_ms}
        expected = self.book.replay([mail.id], terms.key, terms.hold_ms)
        for _ in range(1 + again):
            assert self.run(self.q.replay(mail.id, number=self.numbers, **options)) == expected

    @action(index=indexes)
    def purge(self, index: int) -> None:
        ids = [self._some_id(index), self._some_id(index + 1)]
        expected = self.book.purge(ids)
        assert self.run(self.q.purge(*ids)) == expected

    @action()
    def what_ended_is_forgotten(self) -> None:
        if self.book.ended:
            self.run(self.q.raw.delete(*(self.q.keys.ended(id) for id in self.book.ended)))
            self.book.ended.clear()

    @action()
    def pause(self) -> None:
        self.run(self.q.pause())
        self.book.paused = True

    @action(when=lambda self: self.book.paused)
    def resume(self) -> None:
        assert self.run(self.q.resume())
        self.book.paused = False

    # -------------------------------------------------------------------------------------------------- time, upkeep

    @action(us=st.sampled_from([1, 877, 1000, 1000, 2_000_000, 3_600_000_000]))
    def time_passes(self, us: int) -> None:
        self.book.now_us += us
        self._set_clock()

    @action(
        3,
        when=lambda self: self.book.head_ms > self.book.now_ms,
        us=st.sampled_from([-1, -1, 0, 0, GRACE_MS * 1000 - 1, GRACE_MS * 1000]),
    )
    def the_head_comes_due(self, us: int) -> None:
        """Or nearly so."""
        self.book.now_us = max(self.book.now_us, self.book.head_ms * 1000 + us)
        self._set_clock()

    @action(3, token=consumers, most=st.sampled_from([1, 2, 500, 500]))
    def promote(self, token: str, most: int) -> None:
        until_ms = self.book.now_ms - (0 if token == self.book.leader else GRACE_MS)
        moved = self.book.promote(until_ms, most)
        told = self.run(self.q.promote(token, grace_ms=GRACE_MS, most=most))
        assert (told.moved, told.next_ms) == (moved, self.book.head_ms)
        self.sleeps[token] = (told.next_ms, told.wake_id)

    @action(token=consumers)
    def lead(self, token: str) -> None:
        if not self.book.leader:
            self.book.leader = token
            self.book.epoch += 1
        told = self.run(self.q.lead(token))
        assert (told.mine, told.token) == (token == self.book.leader, self.book.leader)
        assert (told.epoch, told.head_ms) == (self.book.epoch, self.book.head_ms)
        self.sleeps[token] = (told.head_ms, told.wake_id)

    @action(when=lambda self: self.book.leader)
    def the_leader_lease_ends(self) -> None:
        self.run(self.q.raw.delete(self.q.keys.leader))
        self.book.leader = ""

    @action(token=consumers)
    def leave(self, token: str) -> None:
        assert self.run(self.q.leave(token)) == (token == self.book.leader)
        if token == self.book.leader:
            self.book.leader = ""
        if not any(mail.consumer == token for mail in self.book.at("running")):
            assert token not in self.run(self.q.look()).consumers

    @action(token=consumers)
    def prune(self, token: str) -> None:
        self.run(self.q.alive(token))
        self.run(self.q.prune())

    # ---------------------------------------------------------------------------------------- what must hold, always

    @initialize()
    def the_clock_stands(self) -> None:
        assert self.run(self.q.server.now_us()) == START_US

    @invariant()
    def it_is_as_the_book_says(self) -> None:
        now = self.run(self.q.look())
        assert differences(self.book, now) == []
        if self.book.at("ready") and not self.book.paused:
            assert now.bell == 1, "there is something to claim, and nobody is told"

    @invariant()
    def promoters_are_told_of_an_earlier_head(self) -> None:
        head_ms = self.book.head_ms
        misled = [news for next_ms, news in self.sleeps.values() if head_ms >= 0 and (next_ms < 0 or head_ms < next_ms)]
        if misled:
            newest = self.run(self.q.raw.xrevrange(self.q.keys.wake, count=1))
            assert newest
            assert newest[0][0].decode() not in misled

    def teardown(self) -> None:
        try:
            self._let_all_end()
        finally:
            self.q.server.shift.stopped_us = None
            self.run(self.q.raw.flushall())

    def _let_all_end(self) -> None:
        """Nothing was lost: each message that is left is brought to its end, and then nothing of it is."""
        if self.book.paused:
            self.resume()
        self.book.now_us += 3 * HOUR_MS * 1000
        self._set_clock()
        self.promote("ada", 500)
        for consumer in CONSUMERS:
            self.a_worker_freezes(consumer)
        while list(self.book.claimable("hnl", sweeps=True)):
            self.a_sweep_interval_passes()
            self.claim("bob", 10, "hnl", sweep=True, budget=1 << 20, lost=False, by_bell=True)
            for mail in self.book.at("running"):
                if mail.consumer == "bob" and not mail.expired:
                    self._complete_one(mail)
            self.it_is_as_the_book_says()
        self.book.purge(dead := [mail.id for mail in self.book.at("dead")])
        self.run(self.q.purge(*dead))
        self.what_ended_is_forgotten()
        self.it_is_as_the_book_says()
        assert self.book.mails == {}
        assert self.book.unique == {}
        assert self.book.accepted == self.book.terminal

    def _complete_one(self, mail: Mail) -> None:
        one = Given(mail.letter, mail.entry, mail.count, mail.id, mail.record)
        ended = self._ended(one, "done")
        freed = self.book.complete(mail, terms_of(one.record), "done")
        told = self.run(self.q.complete(others=[ended], letter=one.letter, consumer="bob"))
        assert told == ([], [] if freed else [one.id])


ACTIONS = actions_of(AnyOrder)


def pick(some: Sequence[T], index: int) -> T:
    return some[index % len(some)]


def in_stream(one: Given) -> tuple[int, int, int]:
    ms, number = one.entry.split("-")
    return int(ms), int(number), one.deliveries


def state_after(one: Given, *, failed: bool) -> bytes:
    """What a worker writes: the counters that it was given, and those of this delivery."""
    found = re.fullmatch(rb"(\d+) (\d+) (.*)", one.state or b"0 0 {}")
    assert found is not None
    crashes, seen, rest = int(found[1]), int(found[2]), msgspec.json.decode(found[3])
    rest["failures"] = rest.get("failures", 0) + failed
    return b"%d %d %b" % (crashes + one.deliveries - 1, seen + one.deliveries, msgspec.json.encode(rest))
