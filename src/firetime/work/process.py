"""One child process, as the thread that leads it sees it: started, handed errands, killed, and seen to die."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

from firetime.values.errors import WrongContext
from firetime.work.child import READY, receive, send
from firetime.work.whereabouts import Whereabouts

_READY_S = 60.0
"""How long a child may take to import the program; one that takes longer hangs in it."""

_LOOK_S = 1.0
"""How often a silent child is looked at: what it has started may hold its line open when it has died."""

_LEAVE_S = 1.0
_POLL_S = 0.005
_START = "import sys; sys.path[:] = {path!r}; from firetime.work.child import main; main({line}, {lifeline}, {parent})"


class Died(msgspec.Struct, frozen=True):
    """A child has ended in the middle of an errand."""

    how: str


class Child:
    """A child process. Only ``kill`` may be called from another thread than the one that made it."""

    def __init__(self, where: Whereabouts) -> None:
        """Raises ``OSError`` where the machine has no room for one more process."""
        self._ending = threading.Lock()
        self._where = where
        self._line, theirs = socket.socketpair()
        their_end, self._lifeline = os.pipe()
        start = _START.format(path=where.path, line=theirs.fileno(), lifeline=their_end, parent=os.getpid())
        try:
            # a session of its own: Ctrl-C does not reach it, and what it starts can be killed with it
            self._process = subprocess.Popen(  # noqa: S603 - this very interpreter
                [sys.executable, "-c", start],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), their_end],
                start_new_session=True,
            )
        except OSError:
            self._hang_up()
            raise
        finally:
            theirs.close()
            os.close(their_end)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it is gone."""
        with self._ending:
            return self._process.poll() is not None

    def get_ready(self) -> None:
        """Waits until it has imported the program. Raises ``WrongContext`` when it cannot."""
        self._line.settimeout(_READY_S)
        problem = "was gone before it had imported"
        try:
            send(self._line, msgspec.json.encode(self._where))
            said = receive(self._line)
            if said == READY:
                return
            problem = problem if said is None else f"cannot import ({said.decode('utf-8', 'replace')})"
        except TimeoutError:
            self.kill()
            problem = f'hangs (nothing but definitions may stand outside of if __name__ == "__main__":), for {_READY_S:g} s, in'
        except OSError:
            pass
        how = self.bury()
        raise WrongContext(f"a process for run_in='process' {problem} {self._where.home}; it {how}")

    def run(self, errand: bytes, on_sent: Callable[[], None]) -> bytes | Died:
        """Hands an errand over and waits for its report."""
        with suppress(OSError):
            self._line.settimeout(None)
            send(self._line, errand)
            on_sent()
            self._line.settimeout(_LOOK_S)
            while not self.ended:
                with suppress(TimeoutError):
                    if not self._line.recv(1, socket.MSG_PEEK):
                        break
                    self._line.settimeout(None)
                    report = receive(self._line)
                    if report is None:
                        break
                    return report
        return Died(self.bury())

    def kill(self) -> None:
        """Ends it now, with what it has started."""
        with self._ending:
            # not yet waited for, so that its id is nobody else's
            if self._process.returncode is None:
                self._kill_all()

    def bury(self) -> str:
        """Sees to it that it is gone, with what it has started; how it ended."""
        self._wait(_LEAVE_S)
        self.kill()
        code = self._process.wait()
        # a group keeps its number as long as one of it lives
        self._kill_all()
        self._hang_up()
        return f"was killed by {_named(-code)}" if code < 0 else f"ended with exit code {code}"

    def dismiss(self) -> None:
        """Lets it end, as it does when nobody is at the other end of its line; what it has started may go on."""
        self._line.close()
        if not self._wait(_LEAVE_S):
            self.kill()
        self._process.wait()
        self._hang_up()

    def _wait(self, within_s: float) -> bool:
        late = time.monotonic() + within_s
        while not self.ended:
            if time.monotonic() > late:
                return False
            time.sleep(_POLL_S)
        return True

    def _kill_all(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _hang_up(self) -> None:
        self._line.close()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1


def _named(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
