"""Why an aim that a run did not meet is not met: where the time goes, and what was tried. By how much, the run says."""

from __future__ import annotations

from bench.measures import MEASURES

REASONS = {
    "one": (
        "The server spends 50 us on such a dispatch, where a bare XADD or LPUSH of the peers takes 20 to 25: 30 us are the script "
        "(EVALSHA with 12 keys and 7 values 7, six commands called from Lua 10 and their own work 9, the rest Lua itself), which "
        "makes the dispatch repeatable after a lost reply, gives the message its record and its place, and rings. The caller's "
        "side takes as long as a peer's: of its 105 us a third is the event loop and the socket, 10 % the client library, 5 % "
        "packing 29 words, 10 % the message. Tried with success: one timer for all deadlines instead of one a call (12 % of the "
        "caller's time), keys looked up once, the short way for plain messages (script 50 to 33 us), ids with random bits drawn "
        "once a millisecond. Tried and left: GET and SET of the call's number in one command (2.5 us less, but a call that then "
        "fails would be remembered as done); sending from the caller's own task (a caller who is cancelled would cut the line "
        "that others wait on)."
    ),
    "one_sync": (
        "The same 30 us of script as for a single dispatch with an event loop, and for the same reasons; the caller's side, 65 "
        "to 70 us, is the shortest of all systems measured. Before, each call was handed to an event loop in another thread "
        "and back, which took 370 us (decision 17)."
    ),
    "fifty": (
        "Of 17 us a dispatch the message itself takes 8 (arguments encoded, and decoded once to prove that they fit), the "
        "caller's coroutine, future and handle 7; the server 8. From the first batch on one half of the callers is answered "
        "while the other half's messages are on their way (decision 16)."
    ),
    "bulk": "Nearly all of it is the making of messages, 7 us each; the server takes 5 us, while the caller waits.",
    "drain": (
        "A worker spends 17 us on a no-op task, the floor 10: a task of asyncio for each costs both 5 (its weak set, its context, "
        "two turns of the loop); ours also decodes the message and its arguments (2), keeps the lease, times the run, decides the "
        "verdict, counts, and settles with a fence (spread evenly: no function has more than 7 %). The server spends 15 us "
        "where the floor needs 5: records and places beside the stream, one XPENDING for the fences of a batch. It works while "
        "the worker does, since a claim asks for half of the slots (decision 16); with claims of all slots 39,500 a second "
        "instead of 52,200 in the same minute. Tried: garbage collection frozen for what is loaded, and messages that it need "
        "not walk (a tenth); one decoder for all arguments of a call (3 to 0.5 us)."
    ),
    "threads": (
        "Threads of one interpreter take turns under its lock: each task changes threads twice, through one queue there and in "
        "batches back."
    ),
    "latency_p99": (
        "A message takes two round trips after its dispatch: the bell wakes an idle worker, and the worker claims. A peer "
        "that waits on the list itself (huey) or on the stream (repid) takes one; each further process that has to wake "
        "up costs 100 to 250 us on this machine, the calls themselves 60. The second trip stays: a blocked reader of the stream "
        "that froze would be first in line for the next message (design, fact 7), and the claim is what gives priorities, pause "
        "and the sweep."
    ),
    "import_ms": (
        "Half of it is asyncio with ssl and logging, a tenth msgspec, the rest 60 modules of its own; the Redis client, 200 to 400 ms, "
        "is imported on first use. It was under 130 ms whenever the machine was idle."
    ),
    "idle_rss": "The interpreter with asyncio takes 17 MiB, the client library 12.",
}
"""For each measure that has an aim."""

assert REASONS.keys() == {measure.key for measure in MEASURES if measure.aims}
