"""The keeper: a small process that holds the embedded server while anyone uses it, and ends it after the last user.

Started by its file's path, with the standard library alone, because a user waits for it. Everybody agrees by four locks
(flock), which the kernel takes back from whoever was killed:

| lock | held by | says |
|---|---|---|
| `start.lock` | who starts, joins or ends a server | one at a time |
| `users.lock` | every user, shared | somebody needs the server |
| `keeper.lock` | the keeper | somebody will end the server; its pid |
| `server.lock` | the server itself, which inherits it | nobody else may open this data; its pid |

Order: start, then users. No lock file is ever removed, for a lock on a removed file locks nobody out.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

if sys.platform != "win32":  # embedded.py is imported there too, to say what is missing
    import fcntl

START, USERS, KEEPER, SERVER = "start.lock", "users.lock", "keeper.lock", "server.lock"

KEEPER_LOCK_S = 0.5  # whoever only asks whether keeper.lock is held gives it back at once
GONE_S, ENDED_S, KILLED_S = 2.0, 8.0, 5.0  # a clean end is one fsync; in all less than a user's patience (embedded.py)
LOG_LIMIT, LOG_KEPT, LOG_LOOK_S = 1_000_000, 100_000, 60.0
PR_SET_PDEATHSIG = 1

CONFIG = {
    "dir": ".",  # where the keeper stands: if the folder is removed and made anew, the old server cannot touch the new
    "port": "0",
    "unixsocketperm": "700",
    "protected-mode": "no",  # guards TCP, of which there is none
    "daemonize": "no",
    "save": "",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "aof-load-truncated": "yes",  # a crash may cut the last command in half
    "maxmemory-policy": "noeviction",
}


def open_lock(path: Path) -> int:
    """A descriptor to lock; a program that its holder starts does not inherit it (PEP 446), a forked child does."""
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def take(lock: int, *, shared: bool = False, patience_s: float = 0) -> bool:
    """Whether the lock was got in time; asked again and again, since flock knows no timeout."""
    deadline = time.monotonic() + patience_s
    while not _take_now(lock, shared=shared):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.005)
    return True


def _take_now(lock: int, *, shared: bool) -> bool:
    try:
        fcntl.flock(lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for(lock: int) -> None:
    """Takes the lock, however long its holders keep it."""
    fcntl.flock(lock, fcntl.LOCK_EX)


def give_back(lock: int) -> None:
    """Frees the lock for everybody, forked children that share the descriptor included."""
    fcntl.flock(lock, fcntl.LOCK_UN)


def held(path: Path) -> bool:
    """Whether somebody has this lock exclusively."""
    lock = open_lock(path)
    try:
        if not take(lock, shared=True):
            return True
        give_back(lock)  # not by closing alone: a child forked just now would go on holding what was only a question
        return False
    finally:
        os.close(lock)


def write_pid(lock: int) -> None:
    """A pid is good for as long as the lock it is written into is held."""
    os.ftruncate(lock, 0)
    os.pwrite(lock, b"%d\n" % os.getpid(), 0)


def read_pid(lock: int) -> int | None:
    """The process that holds the lock; None when it has not written its pid yet."""
    text = os.pread(lock, 32, 0)
    return int(text) if text.endswith(b"\n") else None


def tell(process: int | None, sign: int) -> None:
    """Sends a signal to a process that may have ended this moment."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if process is not None:
            os.kill(process, sign)


def main(directory: str, binary: str, socket: str) -> None:
    """Leaves the starter's session and process tree, then keeps a server until it ends.

    Who sees keeper.lock held may trust the socket: whatever answered there before has ended by then.
    """
    os.chdir(directory)
    os.umask(0o077)
    server_lock, keeper_lock = open_lock(Path(SERVER)), open_lock(Path(KEEPER))
    if not _end_left_over(server_lock):
        return
    Path(socket).unlink(missing_ok=True)  # stale: with server.lock in hand nobody listens there
    if not take(keeper_lock, patience_s=KEEPER_LOCK_S):
        return  # two were started, because the starter of the first was killed: that one keeps the server
    if os.fork():  # the starter waits for this parent only, and has no child to reap later
        os._exit(0)
    write_pid(keeper_lock)
    _keep(binary, socket, server_lock)


def _end_left_over(server_lock: int) -> bool:
    """Ends the server of a keeper that was killed; whether the data is now free for a server of ours.

    Linux has killed it already and needs a moment at most (its memory, a child that rewrites the append-only file).
    Elsewhere it runs on, and no one else would ever end it.
    """
    if take(server_lock, patience_s=GONE_S):
        return True
    for sign, patience_s in ((signal.SIGTERM, ENDED_S), (signal.SIGKILL, KILLED_S)):
        left_over = read_pid(server_lock)
        if held(Path(KEEPER)):  # asked after the pid was read: a server that is kept is not hit
            return False
        tell(left_over, sign)
        if take(server_lock, patience_s=patience_s):
            return True
    _say(f"a process that cannot be ended holds {SERVER}")
    return False


def _keep(binary: str, socket: str, server_lock: int) -> None:
    _forget_inherited_signals()
    _say("the keeper starts a server")
    server = _start_server(binary, socket, server_lock)
    for sign in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(sign, _ends(server))
    threading.Thread(target=_end_when_alone, args=(server,), daemon=True).start()
    threading.Thread(target=_bound_log, daemon=True).start()
    status = server.wait()
    _say(f"the server ended with status {status}; the keeper leaves")
    _remove_private_folder(socket)


def _forget_inherited_signals() -> None:
    """A starter's blocked SIGTERM would make the server deaf to it; an ignored SIGCHLD would hide the server's end."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _start_server(binary: str, socket: str, server_lock: int) -> "subprocess.Popen[bytes]":
    options = [word for name, value in CONFIG.items() for word in (f"--{name}", value)]
    try:
        return subprocess.Popen(  # noqa: S603  its words are ours
            [binary, *options, "--unixsocket", socket],
            stdin=subprocess.DEVNULL,
            pass_fds=(server_lock,),
            preexec_fn=_before_exec(server_lock),  # noqa: PLW1509  no thread has been started yet
        )
    finally:
        os.close(server_lock)  # from here on the server alone holds it


def _before_exec(server_lock: int) -> Callable[[], None]:
    """What the server's process does before it becomes the server: it ties its life to the keeper's."""
    keeper, die_with_parent = os.getpid(), _death_signal()

    def tie() -> None:
        die_with_parent()
        if os.getppid() != keeper:  # killed before the tie was made
            os._exit(1)
        write_pid(server_lock)

    return tie


def _death_signal() -> Callable[[], object]:
    """On Linux the kernel kills a child when its parent dies; elsewhere the next keeper does (_end_left_over)."""
    if sys.platform != "linux":
        return lambda: None
    try:
        import ctypes
    except ImportError:  # a Python that was built without libffi
        return lambda: None
    prctl = ctypes.CDLL(None).prctl  # looked up here: between fork and exec one does little
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _ends(server: "subprocess.Popen[bytes]") -> Callable[[int, FrameType | None], None]:
    def end_soon(_sign: int, _frame: FrameType | None) -> None:
        threading.Thread(target=_end, args=(server,), daemon=True).start()

    return end_soon


def _end_when_alone(server: "subprocess.Popen[bytes]") -> None:
    """Waits until no user is left; with both locks in hand nobody can join the server while it ends."""
    start, users = open_lock(Path(START)), open_lock(Path(USERS))
    while True:
        wait_for(users)  # the last user has left or was killed
        give_back(users)  # who joins right now holds start.lock and waits for this one: order before haste
        wait_for(start)
        if take(users):
            break
        give_back(start)
    _say("the last user has left")
    _end(server)  # the locks go with this process, after the server


def _end(server: "subprocess.Popen[bytes]") -> None:
    server.terminate()
    time.sleep(ENDED_S)  # main() leaves as soon as the server has ended, and takes this thread with it
    server.kill()


def _remove_private_folder(socket: str) -> None:
    if Path(socket).is_absolute():  # else it lay in the directory itself
        with contextlib.suppress(OSError):  # not empty: the server crashed, and the next one will use the folder again
            Path(socket).parent.rmdir()


def _say(text: str) -> None:
    """One line into the log, which is this process's standard output and the server's too."""
    line = f"{os.getpid()}:K {time.strftime('%d %b %Y %H:%M:%S')} * {text}\n"
    with contextlib.suppress(OSError):  # a full disk must not end the keeper
        os.write(1, line.encode())


def _bound_log() -> None:
    while True:
        with contextlib.suppress(OSError):
            bound(1)
        time.sleep(LOG_LOOK_S)


def bound(log: int) -> None:
    """Cuts a log that is open for appending to its last lines; a line written meanwhile may be lost."""
    size = os.fstat(log).st_size
    if size > LOG_LIMIT:
        kept = os.pread(log, LOG_KEPT, size - LOG_KEPT)
        os.ftruncate(log, 0)
        os.write(log, kept.partition(b"\n")[2])


if __name__ == "__main__":
    main(*sys.argv[1:])
