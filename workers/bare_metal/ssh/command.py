"""One command on a connection: all its input, bounded output, its exit status, by a deadline.

paramiko's own waiting calls have no reliable time-outs, so nothing here waits in them: the
output is read in short waits and the exit status is looked at, never waited for.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import paramiko

from workers.bare_metal.ssh.dial import Connection, Timeouts
from workers.contract import Deadline
from workers.errors import NotDone, OutcomeUnknown, Unreachable

MOST_OUTPUT_BYTES = 8 << 20
"""Of an answer; the supervisor's longest are a tail and a spooled result, 1 MiB each."""
MOST_ERROR_BYTES = 16 << 10
"""Of what is printed beside the answer; the rest is read and dropped."""

_WAIT_SECONDS = 0.2
_PIECE = 1 << 15


@dataclass(frozen=True, slots=True)
class Ended:
    """What a command left; `status` is None when it was ended by a signal."""

    status: int | None
    output: bytes
    errors: str


def run(
    connection: Connection, command: str, given: bytes, deadline: Deadline, timeouts: Timeouts
) -> Ended:
    """Run it.

    Raises:
        NotDone: it certainly got less than all of `given`.
        OutcomeUnknown: it got all and its end was not seen.
    """
    channel = _open(connection, deadline, timeouts)
    try:
        _hand_over(channel, command, given, deadline, timeouts)
        return _answer(channel, deadline)
    finally:
        channel.close()


def _open(connection: Connection, deadline: Deadline, timeouts: Timeouts) -> paramiko.Channel:
    seconds = deadline.within(timeouts.channel).remaining
    try:
        return connection.transport.open_session(timeout=max(0.1, seconds))
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise Unreachable(f"no channel could be opened: {error}") from error


def _hand_over(
    channel: paramiko.Channel, command: str, given: bytes, deadline: Deadline, timeouts: Timeouts
) -> None:
    """A command whose input is cut short sees no whole order, so it does nothing."""
    channel.settimeout(max(0.1, deadline.within(timeouts.channel).remaining))
    try:
        channel.exec_command(command)
        view = memoryview(given)
        while view:
            if deadline.has_passed:
                raise NotDone("the deadline passed before the machine had its order")
            try:
                view = view[channel.send(bytes(view[:_PIECE])) :]
            except TimeoutError:
                continue
        channel.shutdown_write()
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise NotDone(f"the machine did not take its order: {error}") from error


def _answer(channel: paramiko.Channel, deadline: Deadline) -> Ended:
    output, errors = bytearray(), bytearray()
    channel.settimeout(_WAIT_SECONDS)
    is_over = False
    while not is_over:
        is_over = not _read(channel, output)
        while channel.recv_stderr_ready():
            errors += channel.recv_stderr(_PIECE)
            del errors[:-MOST_ERROR_BYTES]
        if len(output) > MOST_OUTPUT_BYTES:
            raise OutcomeUnknown("the machine answers without end")
        if deadline.has_passed:
            raise OutcomeUnknown("the machine did not answer in time")
    status = _status(channel, deadline)
    while channel.recv_stderr_ready():
        errors += channel.recv_stderr(_PIECE)
    return Ended(status, bytes(output), errors[-MOST_ERROR_BYTES:].decode(errors="replace"))


def _read(channel: paramiko.Channel, output: bytearray) -> bool:
    """Add what came; whether more may come."""
    try:
        piece = channel.recv(_PIECE)
    except TimeoutError:
        # Something that the command left running may hold its output open.
        return not (channel.exit_status_ready() and not channel.recv_ready())
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise OutcomeUnknown(f"the connection ended before the answer: {error}") from error
    output += piece
    return bool(piece)


def _status(channel: paramiko.Channel, deadline: Deadline) -> int | None:
    while not channel.exit_status_ready():
        transport = channel.get_transport()
        if transport is None or not transport.is_active():
            raise OutcomeUnknown("the connection ended before the answer was complete")
        if deadline.has_passed:
            raise OutcomeUnknown("the machine did not say in time how the command ended")
        time.sleep(0.01)
    status = channel.recv_exit_status()
    return None if status < 0 else status
