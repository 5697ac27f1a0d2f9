"""What is in Redis beside what the book says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.edges.look import Look
    from tests.model.book import Book, Mail

MAY_STAY = {"swept", "leader:epoch", "schedules_wake", "workers", "workers_seen"}
"""Keys that the book does not keep, beside those of numbered calls."""


def differences(book: Book, now: Look) -> list[str]:
    """All that is not as it must be; entries that the book was waiting to hear of are written into it."""
    for mail in book.at("ready"):
        mail.entry = mail.entry or now.places.get(mail.id, "")[1:]
    found = [f"{what}: {there!r}, not {must!r}" for what, there, must in _beside(book, now) if there != must]
    found += [f"counters of {mail.id}: {got}, not {must}" for mail, got, must in _counters(book, now) if got != must]
    if len(now.wake) > 1 or now.bell > 1:
        found.append(f"{len(now.wake)} news, {now.bell} tokens")
    left = {name for name in now.others if not name.startswith("call:")} - MAY_STAY
    return [*found, *(f"a key is left: {name}" for name in left)]


def _beside(book: Book, now: Look) -> Iterator[tuple[str, Any, Any]]:
    kept = [mail for mail in book.mails.values() if mail.where != "foreign"]
    yield "records", now.tasks, {mail.id: mail.record for mail in kept}
    yield "places", now.places, {mail.id: mail.place for mail in book.at("ready", "running")}
    for letter, ids in book.lanes.items():
        entries = [(entry, fields.get("i"), fields.get("f")) for entry, fields in now.lanes[letter].items()]
        yield f"lane {letter}", entries, [_entry(book.mails[id]) for id in ids]
    running = {mail.place: (mail.consumer, mail.count) for mail in book.at("running")}
    yield "pending", now.pending, running
    yield "delayed", list(now.delayed.items()), [(mail.member, mail.score) for mail in book.delayed()]
    yield "unique", now.unique, {key: f"{until_ms} {id}" for key, (id, until_ms) in book.unique.items()}
    yield "dead", now.dead, {mail.id for mail in book.at("dead")}
    yield "cancelling", now.cancelling, {mail.id for mail in book.mails.values() if mail.asked}
    yield "ended", now.ended, book.ended
    yield "leader", now.leader.partition(" ")[0], book.leader
    yield "paused", now.paused, book.paused
    yield "promoted", now.metrics.get("delayed_tasks_schedule_count", 0), book.promoted
    yield "states of nobody", now.state.keys() - book.mails.keys(), set()


def _entry(mail: Mail) -> tuple[str, str | None, str | None]:
    written_by_us = not (mail.id.startswith("malformed-") and mail.id.endswith(mail.place.replace(mail.letter, "-", 1)))
    fire_ms = None if mail.fire_ms is None else str(mail.fire_ms)
    return mail.entry, mail.id if written_by_us else None, fire_ms


def _counters(book: Book, now: Look) -> Iterator[tuple[Mail, tuple[int, int, int], tuple[int, int, int]]]:
    for mail in book.mails.values():
        yield mail, book.counters(now.state.get(mail.id), mail), (mail.crashes, mail.seen, mail.failures)
