"""Over TLS to a server that proves who it is; one that does not, or does not let in, is one clear error at once.

The server is Redis 7.0, the only one of the four binaries that was built with TLS; Valkey stands behind a TLS front.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from typing import TYPE_CHECKING, Any

import pytest
from redis import Redis

from firetime import BrokerRefused, BrokerUnavailable, InvalidOption, QueueError, TaskRunner
from tests.kit.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from tests.conftest import StartServer, StartWorker
    from tests.kit.servers import ServerProcess
    from tests.security.certificates import Authority

PASSWORD = "s3cret/with:odd@chars#é%"  # noqa: S105 - of this test
QUOTED = "s3cret%2Fwith%3Aodd%40chars%23%C3%A9%25"
USER = "ada@example.com"


class TlsServer:
    """A server with a port for TLS beside its plain one."""

    def __init__(self, process: ServerProcess, port: int) -> None:
        self.process = process
        self.port = port

    def url(self, credentials: str = "", host: str = "127.0.0.1", words: str = "") -> str:
        return f"rediss://{credentials}{host}:{self.port}{f'/0?{words}' if words else ''}"


@pytest.fixture
def start_tls(start_server: StartServer, authority: Authority) -> Callable[..., TlsServer]:
    def start(*, with_user: bool = False, **config: str) -> TlsServer:
        certificate, key = authority.issue("server", addresses=("127.0.0.1",))
        port = free_port()
        files: dict[str, Any] = {
            "tls_cert_file": certificate,
            "tls_key_file": key,
            "tls_ca_cert_file": authority.certificate,
        }
        directives: dict[str, Any] = {"tls_auth_clients": "no", **config}
        directives |= {name: str(path) for name, path in files.items()}
        process = start_server("redis70", tls_port=str(port), **directives)
        if with_user:
            add_user(process)
        return TlsServer(process, port)

    return start


def add_user(process: ServerProcess) -> None:
    with Redis.from_url(process.url) as admin:
        admin.acl_setuser(
            USER, enabled=True, passwords=[f"+{PASSWORD}"], keys=["*"], channels=["*"], categories=["+@all"]
        )


async def close(runner: TaskRunner) -> None:
    """As the stage of the story does: the loop turns until its sockets are closed."""
    await runner.aclose()
    await asyncio.to_thread(runner.close)
    await asyncio.sleep(0.05)


async def use(runner: TaskRunner) -> Any:
    """Sends a task, runs it, and waits for its result."""

    @runner.task(result_ttl=60)
    async def double(number: int) -> int:
        return 2 * number

    try:
        handle = await double.dispatch(21)
        await runner.start()
        return await handle.result(timeout=60)
    finally:
        await close(runner)


async def refusals(make: Callable[[], TaskRunner], *, kept_trying: bool = False) -> list[BaseException]:
    """What a dispatch, a start and a question raise, at once: the deadline is longer than the test may take.

    ``kept_trying``: only what a dispatch raises, which asks again where the server's answer was lost with its connection.
    """
    runner = make()
    found: list[BaseException] = []
    attempts: list[Callable[[], Awaitable[object]]] = [lambda: runner.dispatch("any")]
    attempts += [] if kept_trying else [runner.start, runner.handle("any").status]
    for attempt in attempts:
        with pytest.raises(BrokerRefused) as refused:
            await attempt()
        found.append(refused.value)
    await close(runner)
    return found


def told(errors: list[BaseException], log: pytest.LogCaptureFixture, runner: TaskRunner) -> str:
    """Everything that anybody could have seen of it."""
    shown = [*map(str, errors), *map(repr, errors), runner.address, repr(runner.settings), repr(runner._address)]
    return "\n".join([*shown, log.text, *(str(error.__cause__) for error in errors)])


# ------------------------------------------------------------------------------------------------------------ it works


async def test_a_server_that_an_authority_vouches_for_is_used(
    start_tls: Callable[..., TlsServer], authority: Authority
) -> None:
    assert await use(TaskRunner(start_tls().url(words=f"tls_ca={authority.certificate}"))) == 42


async def test_all_of_it_may_stand_in_the_environment(
    start_tls: Callable[..., TlsServer], authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start_tls(tls_auth_clients="yes", with_user=True)
    certificate, key = authority.issue("client")
    said = {"URL": server.url(), "USERNAME": USER, "PASSWORD": PASSWORD}
    said |= {"TLS_CA": str(authority.certificate), "TLS_CERT": str(certificate), "TLS_KEY": str(key)}
    for name, value in said.items():
        monkeypatch.setenv(f"FIRETIME_{name}", value)
    assert await use(TaskRunner()) == 42


async def test_all_of_it_may_stand_in_arguments(start_tls: Callable[..., TlsServer], authority: Authority) -> None:
    server = start_tls(tls_auth_clients="yes", with_user=True)
    certificate, key = authority.issue("client")
    both = certificate.with_suffix(".both")
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    said: dict[str, Any] = {
        "username": USER,
        "password": PASSWORD,
        "tls_ca": authority.certificate,
        "tls_cert": str(both),
    }
    runner = TaskRunner(server.url(), **said)
    assert PASSWORD not in repr(runner.settings)
    assert await use(runner) == 42


async def test_a_user_and_a_password_of_the_url_are_percent_encoded(
    start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    server = start_server("redis70")
    add_user(server)
    runner = TaskRunner(f"redis://ada%40example.com:{QUOTED}@127.0.0.1:{server.port}")
    assert await use(runner) == 42
    assert QUOTED not in told([], caplog, runner)
    assert "ada%40example.com:***@" in runner.address


@pytest.mark.parametrize("words", ["tls_verify=ca&", "ssl_check_hostname=false&", "tls_verify=none&"])
async def test_a_host_name_need_not_fit_where_that_is_said(
    start_tls: Callable[..., TlsServer], authority: Authority, words: str
) -> None:
    server = start_tls()
    assert (
        await use(TaskRunner(server.url(host="localhost", words=f"{words}ssl_ca_certs={authority.certificate}"))) == 42
    )


async def test_an_unknown_authority_does_not_matter_where_nothing_is_verified(
    start_tls: Callable[..., TlsServer],
) -> None:
    assert await use(TaskRunner(start_tls().url(words="ssl_cert_reqs=none"))) == 42


async def test_valkey_behind_a_tls_front(front: str, authority: Authority) -> None:
    assert await use(TaskRunner(front.replace("rediss", "valkeys"), tls_ca=authority.certificate)) == 42


@pytest.fixture
async def front(valkey: ServerProcess, authority: Authority) -> AsyncIterator[str]:
    """What ends TLS before a Valkey that was built without."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.issue("front", addresses=("127.0.0.1",)))
    ways: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", valkey.port)
        ways.update({asyncio.create_task(pump(reader, inner_writer)), asyncio.create_task(pump(inner_reader, writer))})

    server = await asyncio.start_server(forward, "127.0.0.1", 0, ssl=context)
    yield f"rediss://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    for way in ways:
        way.cancel()
    await asyncio.gather(*ways, return_exceptions=True)


# ----------------------------------------------------------------------------------------------- it is refused at once


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)


PATIENT_S = 600.0
"""A deadline that the test would not live to see: what is refused for good is not tried again until then."""


@pytest.mark.parametrize(
    ("host", "config", "said"),
    [
        ("127.0.0.1", {}, "certificate is not trusted: .*(self.signed|unable to get local issuer)"),
        ("localhost", {"own": "yes"}, "certificate is not trusted: .*[Hh]ostname"),
        ("127.0.0.1", {"own": "yes", "tls_auth_clients": "yes"}, "wants to see a certificate: give tls_cert"),
    ],
    ids=["another authority", "another host name", "no certificate of one's own"],
)
async def test_what_tls_does_not_let_come_about_is_refused(
    start_tls: Callable[..., TlsServer],
    authority: Authority,
    other_authority: Authority,
    caplog: pytest.LogCaptureFixture,
    host: str,
    config: dict[str, str],
    said: str,
) -> None:
    ca = authority if config.get("own") else other_authority
    server = start_tls(**{name: value for name, value in config.items() if name != "own"})
    runner = TaskRunner(server.url(f":{QUOTED}@", host), tls_ca=ca.certificate, dispatch_deadline=PATIENT_S)
    errors = await refusals(lambda: runner, kept_trying=config.get("tls_auth_clients") is not None)
    assert [str(error) for error in errors if not re.search(said, str(error))] == []
    assert not any(word in told(errors, caplog, runner) for word in (PASSWORD, QUOTED))


async def test_a_certificate_of_another_authority_is_refused_by_the_server(
    start_tls: Callable[..., TlsServer], authority: Authority, other_authority: Authority
) -> None:
    certificate, key = other_authority.issue("stranger")
    files: dict[str, Any] = {"tls_ca": authority.certificate, "tls_cert": certificate, "tls_key": key}
    runner = TaskRunner(start_tls(tls_auth_clients="yes").url(), **files, dispatch_deadline=PATIENT_S)
    # the server says why and hangs up, and what it says may be lost with the connection: then the dispatch asks again
    with pytest.raises(BrokerRefused, match="does not trust the certificate given as tls_cert"):
        await runner.dispatch("any")
    with pytest.raises(QueueError):
        await runner.start()
    await close(runner)


async def test_tls_to_a_server_that_waits_for_plain_words_ends_with_the_deadline(
    valkey: ServerProcess, authority: Authority
) -> None:
    url = valkey.url.replace("redis://", "rediss://")
    runner = TaskRunner(url, tls_ca=authority.certificate, dispatch_deadline=0.5)
    with pytest.raises(BrokerUnavailable, match="nothing was accepted"):
        await runner.dispatch("any")
    await close(runner)


async def test_tls_to_a_port_that_answers_without_it_is_refused(authority: Authority) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"rediss://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    errors = await refusals(lambda: TaskRunner(url, tls_ca=authority.certificate, dispatch_deadline=PATIENT_S))
    server.close()
    assert {"the server does not speak TLS at this port" in str(error) for error in errors} == {True}


@pytest.mark.parametrize(
    "credentials",
    [f"{QUOTED}:", f"ada%40example.com:{QUOTED}x", f":{QUOTED}x", f"nobody:{QUOTED}", ""],
    ids=["password as user", "wrong password", "no user", "missing user", "nothing"],
)
@pytest.mark.parametrize("tls", [True, False], ids=["TLS", "plain"])
async def test_credentials_that_are_refused_are_not_told(
    start_tls: Callable[..., TlsServer],
    authority: Authority,
    caplog: pytest.LogCaptureFixture,
    credentials: str,
    tls: bool,
) -> None:
    server = start_tls(with_user=True, requirepass="default-password")
    port = server.port if tls else server.process.port
    at = f"{credentials}@" if credentials else ""
    url = f"{'rediss' if tls else 'redis'}://{at}127.0.0.1:{port}"
    settings: dict[str, Any] = {"tls_ca": authority.certificate} if tls else {}
    runner = TaskRunner(url, dispatch_deadline=PATIENT_S, **settings)
    errors = await refusals(lambda: runner)
    assert {"the server refuses these credentials or rights" in str(error) for error in errors} == {True}
    shown = told(errors, caplog, runner)
    assert credentials.startswith(QUOTED) or not any(word in shown for word in ("s3cret", PASSWORD, QUOTED))


async def test_a_worker_process_ends_with_one_line_and_no_password(
    start_tls: Callable[..., TlsServer], other_authority: Authority, start_worker: StartWorker, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text("from firetime import TaskRunner\nrunner = TaskRunner()\n")
    script = (
        "import sys\nsys.argv = ['firetime', 'worker', 'app:runner']\nfrom firetime.faces.cli import main\nmain()\n"
    )
    server = start_tls()
    env = {"FIRETIME_URL": server.url(f":{QUOTED}@"), "FIRETIME_TLS_CA": str(other_authority.certificate)}
    worker = start_worker(
        f"import os\nos.chdir({str(tmp_path)!r})\nsys_path = __import__('sys').path\n"
        f"sys_path.insert(0, {str(tmp_path)!r})\n{script}",
        env=env,
    )
    assert worker.wait(60) == 1
    assert "certificate is not trusted" in worker.printed
    assert "Traceback" not in worker.printed
    assert "s3cret" not in worker.printed


# --------------------------------------------------------------------------------------------- what cannot be meant


def test_a_file_that_is_missing_or_no_pem_is_named_before_anything_connects(
    tmp_path: Path, authority: Authority
) -> None:
    garbage, certificate = tmp_path / "garbage.pem", authority.issue("mine")[0]
    garbage.write_text("no certificate")
    other_key = authority.issue("yours")[1]
    for settings, said in (
        (
            {"tls_ca": tmp_path / "none.pem"},
            r"tls_ca='.*none\.pem': expected a file of certificates in PEM form \(No such",
        ),
        ({"tls_ca": garbage}, "tls_ca=.*in PEM form"),
        ({"tls_cert": garbage}, "tls_cert=.*a certificate and its key in PEM form"),
        ({"tls_cert": certificate}, "tls_cert=.*a certificate and its key"),
        ({"tls_cert": certificate, "tls_key": other_key}, "tls_cert=.*(KEY_VALUES_MISMATCH|key values mismatch)"),
        ({"tls_key": other_key}, "tls_key=.*expected tls_cert beside it"),
        ({"tls_verify": "some"}, "tls_verify='some': expected one of 'full', 'ca', 'none'"),
        ({"password": ""}, r"password=\*\*\*: expected a text that is not empty"),
        ({"password": 1234}, r"password=\*\*\*: expected a text"),
        ({"pasword": "hunter2"}, r"pasword=\*\*\*: expected one of the settings"),
    ):
        with pytest.raises(InvalidOption, match=said):
            TaskRunner("rediss://nowhere.invalid", **settings)


@pytest.mark.parametrize("url", ["redis://nowhere.invalid", "unix:///run/redis.sock", None])
def test_tls_that_would_not_be_used_is_refused(url: str | None, authority: Authority) -> None:
    with pytest.raises(InvalidOption, match=r"tls_ca=.*: expected a (rediss://|url with it)"):
        TaskRunner(url, tls_ca=authority.certificate)


ODD_URLS = [
    "redis://:hunter2/x@localhost",
    "redis://:hunter2#x@localhost",
    "redis://ada:12#hunter2@localhost",
    "redis://ada:12/hunter2@localhost",
    "redis://ada:12?hunter2@localhost",
    "redis://hunter2:x/y@localhost",
    "redis://ada:hunter2@localhost?pasword=hunter2",
    "redis://localhost?passwort=hunter2@home",
    "redis://ada:hunter2@[::1",
    "redis+sentinel://ada:hunter2@localhost",
    "redis://ada:hunter2\udcff@localhost",
]


@pytest.mark.parametrize("url", ODD_URLS)
def test_a_password_that_should_have_been_encoded_is_not_told(url: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        TaskRunner(url)
    assert "hunter2" not in str(refused.value).replace("pasword=hunter2", "")


@pytest.mark.parametrize(
    "url",
    [
        "redis://hunter2@localhost",
        "redis://ada:hunter2@localhost/1",
        "redis://localhost?password=hunter2&username=ada",
        "redis+sentinel://ada:hunter2@localhost/service?sentinel_password=hunter2",
        "redis+cluster://:hunter2@one,two:7000",
        "unix://ada:hunter2@/run/redis.sock?db=1",
        "rediss://ada:hunter2@localhost?ssl_password=hunter2",
    ],
)
def test_an_address_is_shown_without_its_passwords(url: str) -> None:
    runner = TaskRunner(url)
    assert "hunter2" not in runner.address + repr(runner._address) + repr(runner.settings)
    assert "localhost" in runner.address or "one,two:7000" in runner.address or "/run/redis.sock" in runner.address
