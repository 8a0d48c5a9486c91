"""Whatever an agent does, its end is known and nothing of it stays."""

from __future__ import annotations

import os
import signal
import time

import psutil
import pytest

from tests.integration.workers.bare_metal.conftest import Site, soon
from tests.support.waiting import eventually, processes_of
from workers.bare_metal import backend
from workers.contract import Deadline, ExitKind, LifecycleEvent, LifecycleKind
from workers.errors import OutcomeUnknown, Permanent

WAIT = """
import signal
print("up", flush=True)
while True:
    signal.pause()
"""

STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAIT

FORKS_A_DAEMON = """
import os, signal, sys
def daemon(environment):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve("/bin/sleep", [sys.argv[0] + "-daemon", "1000"], environment)
        os._exit(0)
    os.wait()
daemon({"KICI_AGENT_ID": os.environ["KICI_AGENT_ID"]})
daemon({})
print("up", flush=True)
while not os.environ.get("ENDS"):
    signal.pause()
"""


def _daemons(site: Site) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        arguments = process.info["cmdline"] or []
        if arguments[1:] == ["1000"] and arguments[0].startswith(str(site.folder)):
            found.append(process)
    return found


def test_an_agent_that_ignores_termination_is_killed_after_its_grace(site: Site) -> None:
    agent_id, _ = site.run(STUBBORN)
    site.printed(agent_id, "up")
    began = time.monotonic()

    site.destroy(agent_id)

    assert 5 <= time.monotonic() - began < 10
    assert not site.living()


def test_an_agent_that_obeys_is_gone_long_before_its_grace_is_over(site: Site) -> None:
    agent_id, _ = site.run(WAIT)
    site.printed(agent_id, "up")
    began = time.monotonic()

    site.destroy(agent_id)

    assert time.monotonic() - began < 3
    assert not site.living()
    assert not site.supervisors()


def test_a_destroy_that_cannot_be_confirmed_in_time_says_so_and_can_be_repeated(
    site: Site,
) -> None:
    agent_id, _ = site.run(STUBBORN)
    site.printed(agent_id, "up")
    site.monitor(agent_id).suspend()

    with pytest.raises(OutcomeUnknown):
        site.destroy(agent_id, Deadline.after(1.5))
    site.destroy(agent_id)

    assert not site.living()
    assert not site.supervisors()


def test_daemons_are_destroyed_with_their_agent_whatever_their_environment(site: Site) -> None:
    agent_id, _ = site.run(FORKS_A_DAEMON)
    site.printed(agent_id, "up")
    eventually(lambda: len(_daemons(site)) == 2)

    site.destroy(agent_id)

    assert not _daemons(site)
    assert not site.living()


def test_what_an_agent_leaves_behind_ends_with_it(site: Site) -> None:
    agent_id, _ = site.run(FORKS_A_DAEMON, ENDS="yes")

    assert site.cause(agent_id).kind is ExitKind.EXITED
    eventually(lambda: not _daemons(site), why="daemons outlived their agent")
    eventually(lambda: not site.supervisors(), why="the monitor outlived its agent")


def test_a_daemon_whose_monitor_and_agent_were_killed_is_still_found(site: Site) -> None:
    agent_id, _ = site.run(FORKS_A_DAEMON)
    site.printed(agent_id, "up")
    eventually(lambda: len(_daemons(site)) == 2)
    [marked] = [each for each in _daemons(site) if each.environ()]
    for each in _daemons(site):
        if each.pid != marked.pid:
            each.kill()
    site.monitor(agent_id).kill()
    site.process(agent_id).kill()
    eventually(lambda: not site.supervisors())

    site.destroy(agent_id)

    assert not _daemons(site)


@pytest.mark.parametrize("code", [0, 1, 77])
def test_an_exit_is_told_with_its_code(site: Site, code: int) -> None:
    agent_id, _ = site.run(f"import time; time.sleep(0.5); print('bye'); raise SystemExit({code})")

    cause = site.cause(agent_id)

    assert (cause.kind, cause.exit_code, cause.signal) == (ExitKind.EXITED, code, None)
    assert cause.log_tail == ("bye",)


def test_a_killed_agent_is_told_with_the_signal(site: Site) -> None:
    agent_id, _ = site.run(WAIT)
    site.printed(agent_id, "up")

    site.process(agent_id).kill()

    cause = site.cause(agent_id)
    assert (cause.kind, cause.signal) == (ExitKind.SIGNALLED, signal.SIGKILL)
    assert cause.exit_code is None


def test_an_agent_that_ends_at_once_fails_its_spawn_with_code_and_output(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "WATCH_SECONDS", 20.0)
    told: list[LifecycleEvent] = []
    source = "import sys; print('no licence', file=sys.stderr); raise SystemExit(9)"

    with pytest.raises(Permanent, match="exited with code 9") as failure:
        site.backend.spawn(site.order(site.label_set(source), report=told.append), soon())

    assert failure.value.log_tail == ("no licence",)
    assert told[-1].kind is LifecycleKind.FAILED
    assert told[-1].detail.splitlines()[-2:] == ["--- captured output ---", "no licence"]


def test_an_agent_that_ends_at_once_without_an_error_may_have_done_its_job(site: Site) -> None:
    agent_id, _ = site.run("print('served')")

    cause = site.cause(agent_id)

    assert (cause.kind, cause.exit_code, cause.log_tail) == (ExitKind.EXITED, 0, ("served",))


def test_a_result_that_was_not_delivered_comes_with_the_exit(site: Site) -> None:
    source = """
        import os, pathlib, time
        pathlib.Path(os.environ["KICI_AGENT_STATE_DIR"], "result.json").write_text('{"ok": 1}')
        time.sleep(0.5)
    """

    agent_id, _ = site.run(source)

    assert site.cause(agent_id).spool == '{"ok": 1}'


def test_an_agent_whose_monitor_was_killed_runs_on_and_is_still_owned(site: Site) -> None:
    agent_id, _ = site.run(WAIT)
    site.printed(agent_id, "up")

    site.monitor(agent_id).kill()

    eventually(lambda: not site.supervisors())
    [found] = site.backend.inventory(site.installation_id, soon())
    assert found.running
    site.process(agent_id).kill()
    assert site.cause(agent_id).kind is ExitKind.VANISHED
    site.destroy(agent_id)
    assert not site.living()


def test_the_longest_output_leaves_a_bounded_file_that_ends_with_the_last_words(
    site: Site,
) -> None:
    source = """
        import sys
        for number in range(400):
            sys.stdout.write("x" * 99999 + "\\n")
        print("last words")
    """

    agent_id, _ = site.run(source)

    assert site.cause(agent_id).log_tail[-1] == "last words"
    kept = sum(each.stat().st_size for each in site.agent_folder(agent_id).glob("output.log*"))
    assert 2_000_000 < kept <= 4 << 20


def test_agents_outlive_the_worker_that_started_them(site: Site) -> None:
    agent_id, _ = site.run(WAIT)
    site.printed(agent_id, "up")

    agent, monitor = site.process(agent_id), site.monitor(agent_id)

    assert monitor.ppid() == 1 or "kici" not in psutil.Process(monitor.ppid()).name()
    assert agent.ppid() == monitor.pid
    assert len({os.getsid(agent.pid), os.getsid(monitor.pid), os.getsid(1)}) == 3
    assert processes_of(agent_id) == [agent]
