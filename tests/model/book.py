"""The book: every message of a queue and where it must be, kept in plain Python beside what the scripts do.

Written from the design, not from the Lua. It knows no Redis: what only the server can tell (the entry in which a message
stands) it is told, and checks.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.edges.driver import Answer, Sent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.edges.driver import Given

SLOTS = 4096
LETTERS = "hnl"


@dataclass(slots=True, kw_only=True)
class Mail:
    """One message that has not ended."""

    id: str
    record: bytes
    letter: str
    where: str
    """delayed, ready, running, dead; foreign: an entry that somebody else wrote and nobody has claimed."""
    score: int = 0
    fire_ms: int | None = None
    """What its entry says of its fire-time."""
    entry: str = ""
    consumer: str = ""
    count: int = 0
    expired: bool = False
    """Its lease has run out."""
    crashes: int = 0
    failures: int = 0
    seen: int = 0
    """Deliveries in its life."""
    fence: int = 0
    """The newest that user code was shown."""
    asked: bool = False
    """Somebody asked to cancel it while it ran."""

    @property
    def member(self) -> str:
        return self.id + self.letter

    @property
    def place(self) -> str:
        return self.letter + self.entry


@dataclass(frozen=True, slots=True)
class Terms:
    """What a worker reads in the record of a message."""

    key: str = ""
    hold_ms: int = 0
    remember_ms: int = 0

    def record(self, number: int) -> bytes:
        return json.dumps([number, self.key, self.hold_ms, self.remember_ms]).encode()


def terms_of(record: bytes | None) -> Terms:
    """None in what somebody else wrote."""
    try:
        _, key, hold_ms, remember_ms = json.loads(record or b"")
    except ValueError:
        return Terms()
    return Terms(key, hold_ms, remember_ms)


@dataclass(slots=True)
class Book:
    """One queue, as it must be."""

    now_us: int
    mails: dict[str, Mail] = field(default_factory=dict)
    lanes: dict[str, list[str]] = field(default_factory=lambda: {letter: [] for letter in LETTERS})
    """Ids in the order of their entries."""
    unique: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Key -> holder, and until when (ms; 0: to its end)."""
    ended: dict[str, str] = field(default_factory=dict)
    """What is remembered."""
    paused: bool = False
    leader: str = ""
    epoch: int = 0
    accepted: int = 0
    terminal: int = 0
    promoted: int = 0

    @property
    def now_ms(self) -> int:
        return self.now_us // 1000

    def at(self, *where: str) -> list[Mail]:
        """Those in a state, in the order in which they came to be known."""
        return [mail for mail in self.mails.values() if mail.where in where]

    def delayed(self) -> list[Mail]:
        """In the order in which they will be promoted."""
        return sorted(self.at("delayed"), key=lambda mail: (mail.score, mail.member))

    @property
    def head_ms(self) -> int:
        return min((mail.score // SLOTS for mail in self.at("delayed")), default=-1)

    # ------------------------------------------------------------------------------------------------- small moves

    def _delay(self, mail: Mail, fire_ms: int) -> None:
        taken = [other.score for other in self.at("delayed") if other is not mail and other.score // SLOTS == fire_ms]
        mail.where, mail.score = "delayed", max(taken, default=fire_ms * SLOTS - 1) + 1
        mail.entry = mail.consumer = ""
        mail.count = 0

    def _enter(self, mail: Mail, fire_ms: int | None = None) -> None:
        mail.where, mail.fire_ms, mail.entry, mail.consumer, mail.count = "ready", fire_ms, "", "", 0
        self.lanes[mail.letter].append(mail.id)

    def _wait(self, mail: Mail, fire_ms: int) -> None:
        if fire_ms > self.now_ms:
            self._delay(mail, fire_ms)
        else:
            self._enter(mail)

    def _leave_lane(self, mail: Mail) -> None:
        self.lanes[mail.letter].remove(mail.id)
        mail.expired = False

    def _end(self, mail: Mail, key: str, outcome: str = "", *, remember: bool = False) -> bool:
        """It is over; tells whether its unique key was its own to the end."""
        self.mails.pop(mail.id)
        self.terminal += 1
        if remember:
            self.ended[mail.id] = outcome
        return self.free(key, mail.id)

    def free(self, key: str, id: str) -> bool:
        if self.unique.get(key, ("", 0))[0] != id:
            return not key
        del self.unique[key]
        return True

    def hold(self, key: str, id: str, from_ms: int, hold_ms: int) -> None:
        self.unique[key] = (id, from_ms + hold_ms if hold_ms else 0)

    def holder(self, key: str) -> str | None:
        """Who keeps others from this key: not a message that is gone, nor one past its time that does not run."""
        id, until_ms = self.unique.get(key, ("", 0))
        mail = self.mails.get(id)
        if mail is None or (0 < until_ms <= self.now_ms and mail.where != "running"):
            return None
        return id

    # ------------------------------------------------------------------------------------------------ none -> ready

    def dispatch(self, batch: Sequence[Sent], max_length: int) -> list[Answer]:
        answers: list[Answer] = []
        waiting = sum(map(len, self.lanes.values())) + len(self.at("delayed"))
        room = max(0, max_length - waiting) if max_length else len(batch)
        accepted: list[tuple[str, Sent, int]] = []
        for position, one in enumerate(batch):
            fire_ms = self._fire_ms(one)
            ids = {id for id, _, _ in accepted}
            if one.explicit and (one.id in ids or self._known(one.id) or one.id in self.ended):
                answers.append(Answer(position, "exists", one.id))
                continue
            here = next((i for i, (_, other, _) in enumerate(accepted) if one.key and other.key == one.key), None)
            holder = accepted[here][0] if here is not None else self.holder(one.key) if one.key else None
            waits = holder is not None and (
                accepted[here][2] > self.now_ms if here is not None else self.mails[holder].where == "delayed"
            )
            if holder is not None and not (one.on_conflict == "replace" and waits):
                answers.append(Answer(position, "held", holder))
            elif holder is not None:
                answers.append(Answer(position, "moved", holder))
                if here is not None:
                    accepted[here] = (holder, one, fire_ms)
                else:
                    accepted.append((holder, one, fire_ms))
            elif room < 1:
                answers.append(Answer(position, "full", ""))
            else:
                room -= 1
                accepted.append((one.id, one, fire_ms))
        for id, one, fire_ms in accepted:
            self._accept(id, one, fire_ms)
        return answers

    def _fire_ms(self, one: Sent) -> int:
        if one.in_us is not None:
            return -(-(self.now_us + one.in_us) // 1000)
        return self.now_ms if one.at_ms is None else one.at_ms

    def _known(self, id: str) -> bool:
        return id in self.mails and self.mails[id].where != "foreign"

    def _accept(self, id: str, one: Sent, fire_ms: int) -> None:
        mail = self.mails.get(id)
        if mail is None:
            mail = self.mails[id] = Mail(id=id, record=one.record, letter=one.letter, where="new")
            self.accepted += 1
        mail.record, mail.letter, mail.where = one.record, one.letter, "new"
        if one.key:
            self.hold(one.key, id, fire_ms, one.hold_ms)
        self._wait(mail, fire_ms)

    def replay(self, ids: Sequence[str], key: str, hold_ms: int) -> list[Answer]:
        answers: list[Answer] = []
        for position, id in enumerate(ids):
            mail, holder = self.mails.get(id), self.holder(key) if key else None
            if mail is None or mail.where != "dead":
                answers.append(Answer(position, "not dead", ""))
            elif holder not in {None, id}:
                answers.append(Answer(position, "held", str(holder)))
            else:
                mail.crashes = mail.failures = 0
                if key:
                    self.hold(key, id, self.now_ms, hold_ms)
                self._enter(mail)
        return answers

    def purge(self, ids: Sequence[str]) -> int:
        dead = [id for id in dict.fromkeys(ids) if id in self.mails and self.mails[id].where == "dead"]
        for id in dead:
            self._end(self.mails[id], "")
        return len(dead)

    def intrude(self, letter: str, entry: str, record: bytes) -> None:
        """Somebody else wrote an entry into a lane."""
        id = f"malformed-{letter}-{entry}"
        self.mails[id] = Mail(id=id, record=record, letter=letter, where="foreign", entry=entry)
        self.lanes[letter].append(id)
        self.accepted += 1

    # --------------------------------------------------------------------------------------------- ready -> running

    def claimable(self, order: str, *, sweeps: bool) -> Iterator[Mail]:
        """In the order in which a claim must hand them out."""
        if self.paused:
            return
        lanes = [[self.mails[id] for id in self.lanes[letter]] for letter in order]
        if sweeps:
            yield from (mail for lane in lanes for mail in lane if mail.where == "running" and mail.expired)
        yield from (mail for lane in lanes for mail in lane if mail.where in {"ready", "foreign"})

    def hand_out(self, mail: Mail, consumer: str) -> None:
        if mail.where == "running":
            mail.crashes += 1
        mail.count += 1
        mail.seen += 1
        mail.where, mail.consumer, mail.expired = "running", consumer, False

    def held(self, consumer: str, one: Given) -> Mail | None:
        """The message, if this delivery of it still holds."""
        mail = self.mails.get(one.id)
        if mail is None or mail.where != "running" or (mail.consumer, mail.place) != (consumer, one.place):
            return None
        return mail if mail.count == one.deliveries else None

    # ------------------------------------------------------------------------------------------------------ settling

    def complete(self, mail: Mail, terms: Terms, outcome: str) -> bool:
        """Whether its unique key was its own."""
        self._leave_lane(mail)
        return self._end(mail, terms.key, outcome, remember=terms.remember_ms > 0)

    def retry(self, mail: Mail, terms: Terms, delay_us: int) -> str:
        self._leave_lane(mail)
        if mail.asked:
            self._end(mail, terms.key, "cancelled", remember=True)
            return "cancelled"
        mail.failures += 1
        fire_ms = -(-(self.now_us + delay_us) // 1000)
        if terms.key and terms.hold_ms and self.unique.get(terms.key, ("", 0))[0] == mail.id:
            self.hold(terms.key, mail.id, fire_ms, terms.hold_ms)
        if delay_us > 0:
            self._delay(mail, fire_ms)
        else:
            self._enter(mail)
        return "retried"

    def bury(self, mail: Mail, terms: Terms) -> None:
        self._leave_lane(mail)
        mail.failures += 1
        mail.where, mail.asked = "dead", False
        self.free(terms.key, mail.id)

    def release(self, mail: Mail, fire_ms: int | None, *, started: bool) -> None:
        self._leave_lane(mail)
        if mail.count == 1 and not started:
            mail.seen -= 1  # user code never saw it
        self._enter(mail, fire_ms)

    # ------------------------------------------------------------------------------------------------------- control

    def cancel(self, id: str, key: str, *, remember: bool) -> str:
        mail = self.mails.get(id)
        if mail is None or mail.where == "foreign":
            return "finished" if id in self.ended else "not found"
        if mail.where == "dead":
            return "finished"
        if mail.where == "running":
            mail.asked = True
            return "requested"
        if mail.where == "ready":
            self._leave_lane(mail)
        self._end(mail, key, "cancelled", remember=remember)
        return "cancelled"

    def reschedule(self, id: str, fire_ms: int, terms: Terms) -> tuple[str, int | None]:
        mail = self.mails.get(id)
        if mail is None or mail.where == "foreign":
            return "finished" if id in self.ended else "not found", None
        if mail.where != "delayed":
            return "finished" if mail.where == "dead" else mail.where, None
        fire_ms = max(fire_ms, self.now_ms)
        if fire_ms > self.now_ms:
            self._delay(mail, fire_ms)
        else:
            self._enter(mail, fire_ms)
        if terms.key and terms.hold_ms and self.unique.get(terms.key, ("", 0))[0] == id:
            self.hold(terms.key, id, fire_ms, terms.hold_ms)
        return "rescheduled", fire_ms

    def promote(self, until_ms: int, most: int) -> int:
        due = [mail for mail in self.delayed() if mail.score // SLOTS <= until_ms][:most]
        for mail in due:
            self._enter(mail, mail.score // SLOTS)
        self.promoted += len(due)
        return len(due)

    def counters(self, state: bytes | None, mail: Mail) -> tuple[int, int, int]:
        """Crashes, deliveries and failures that the kept state and the present entry tell of."""
        crashes, seen, rest = (state or b"0 0 {}").split(b" ", 2)
        failures: Any = json.loads(rest).get("failures", 0)
        again = max(0, mail.count - 1) if mail.where == "running" else 0
        return int(crashes) + again, int(seen) + (mail.count if mail.where == "running" else 0), failures
