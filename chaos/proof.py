"""The ledger is asked for every way in which a promise can be broken; what it finds is named, with examples."""

from __future__ import annotations

import msgspec

from chaos.excuses import unexplained_repeats
from chaos.ledger import Ledger
from chaos.plan import Plan


class Broken(msgspec.Struct, frozen=True):
    """One promise, and how often it was found broken."""

    promise: str
    times: int
    examples: list[str]


_DEADLY = "('doomed', 'overdue', 'kill')"

_ACCEPTED = """
CREATE TEMP TABLE accepted AS
  SELECT id, MIN(what = 'maybe') AS maybe, MIN(at_us) AS at_us FROM answer
  WHERE what IN ('yes', 'exists', 'maybe') GROUP BY id;
INSERT INTO accepted
  SELECT id, 1, at_us FROM sent WHERE id NOT IN (SELECT id FROM answer);
CREATE INDEX temp.accepted_id ON accepted (id);
CREATE TEMP TABLE good AS
  SELECT id, MIN(at_us) AS first_us, COUNT(*) AS times FROM finish WHERE how = 'good' GROUP BY id;
CREATE INDEX temp.good_id ON good (id);
"""
"""``maybe``: no answer came, so it may run or not; a producer that was killed before the answer leaves such ones too."""

# ruff: noqa: S608 - these questions are put together from constants alone
_QUESTIONS = {
    "lost: accepted, and neither done, dead nor cancelled": """
        SELECT id FROM accepted WHERE NOT maybe
          AND id NOT IN (SELECT id FROM good) AND id NOT IN (SELECT id FROM dead)
          AND id NOT IN (SELECT id FROM cancelled)""",
    "early: started before its fire-time": """
        SELECT id FROM start WHERE fire_ms > 0 AND at_us < fire_ms * 1000""",
    "early: started before its delay was over, by the clock of who dispatched it": """
        SELECT start.id FROM start JOIN sent ON sent.id = start.id
        WHERE sent.key = ''  -- another dispatch may have moved one with a key to an earlier time
        GROUP BY start.id HAVING MIN(start.at_us) < MIN(sent.at_us + sent.delay_us)""",
    "early: a run of the schedule before its slot": """
        SELECT id FROM start WHERE nominal_ms > 0 AND at_us < nominal_ms * 1000""",
    "a slot of the schedule given to two tasks": """
        SELECT nominal_ms FROM start WHERE nominal_ms > 0 GROUP BY nominal_ms HAVING COUNT(DISTINCT id) > 1""",
    "one delivery, by its fence, run twice": """
        SELECT id FROM start GROUP BY id, fence HAVING COUNT(*) > 1""",
    "run, though the dispatch had been refused": """
        SELECT start.id FROM start WHERE task <> 'tick'
          AND id IN (SELECT id FROM answer WHERE what IN ('no', 'held', 'moved'))
          AND id NOT IN (SELECT id FROM accepted)""",
    "run, and nobody had dispatched it": """
        SELECT id FROM start WHERE task <> 'tick' AND id NOT IN (SELECT id FROM sent)""",
    "run as another task, in another queue or with another's argument": """
        SELECT start.id FROM start JOIN sent ON sent.id = start.id
        WHERE sent.key = ''
          AND (start.number <> sent.number OR start.task <> sent.task OR start.queue <> sent.queue)""",
    "started after it had been cancelled": """
        SELECT start.id FROM start JOIN cancel_answer USING (id)
        WHERE cancel_answer.what = 'CANCELLED' AND start.at_us > cancel_answer.at_us""",
    "done after it had been cancelled": """
        SELECT id FROM cancelled WHERE id IN (
          SELECT settlement.id FROM settlement WHERE settlement.what = 'Complete')""",
    "dead, though it need not have failed": f"""
        SELECT dead.id || ' ' || dead.reason FROM dead LEFT JOIN sent USING (id)
        WHERE COALESCE(sent.task, '') NOT IN {_DEADLY}""",
    "done, though it was to die": f"""
        SELECT sent.id FROM sent JOIN good USING (id) WHERE sent.task IN {_DEADLY}""",
    "dead with another count of failures than it had": """
        SELECT dead.id || ' ' || dead.reason || ' ' || dead.failures FROM dead JOIN sent USING (id)
        WHERE sent.task = 'doomed' AND dead.failures <> 2""",
    "dead, and the failure handler was not told": """
        SELECT id FROM dead WHERE id NOT IN (SELECT id FROM told)""",
    "completed more than once, by the server's own history": """
        SELECT id FROM history GROUP BY id HAVING COUNT(*) > 1""",
    "done and kept, and not in the server's history": """
        SELECT good.id FROM good JOIN sent USING (id) WHERE sent.task = 'kept'
          AND good.id NOT IN (SELECT id FROM history) AND good.id NOT IN (SELECT id FROM cancelled)""",
    "an explicit id that was dispatched anew and accepted twice": """
        SELECT id FROM answer WHERE what = 'yes' GROUP BY id HAVING COUNT(*) > 1""",
    "two that hold one unique key ran at once": """
        WITH held AS (
          SELECT sent.queue, sent.key, start.id, MIN(start.at_us) AS from_us, MIN(good.first_us) AS to_us
          FROM start JOIN sent USING (id) JOIN good USING (id) WHERE sent.key <> '' GROUP BY start.id),
        beside AS (SELECT id, from_us, LAG(to_us) OVER (PARTITION BY queue, key ORDER BY from_us) AS before_us FROM held)
        SELECT id FROM beside WHERE from_us < before_us""",
}
"""What must not be -> the question that finds it."""


def broken_promises(ledger: Ledger, plan: Plan) -> list[Broken]:
    """Every promise that did not hold."""
    ledger.db.executescript(_ACCEPTED)
    found = []
    for promise, question in _QUESTIONS.items():
        ids = [str(row[0]) for row in ledger.rows(question)]
        if ids:
            found.append(Broken(promise, len(ids), ids[:5]))
    for promise, examples in unexplained_repeats(ledger, plan).items():
        if examples:
            found.append(Broken(promise, len(examples), examples[:5]))
    return found


def early_starts(ledger: Ledger) -> list[str]:
    """The ids of all that started early, by any of the clocks that can tell."""
    questions = [question for promise, question in _QUESTIONS.items() if promise.startswith("early")]
    return sorted({str(row[0]) for question in questions for row in ledger.rows(question)})
