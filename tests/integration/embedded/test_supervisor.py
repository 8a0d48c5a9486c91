"""The supervisor keeps real processes running and leaves none behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kici_scaler.embedded.child import State
from kici_scaler.embedded.errors import StartFailed, StartInterrupted
from kici_scaler.embedded.process import StopStep
from kici_scaler.embedded.restarts import RestartPolicy
from kici_scaler.embedded.supervisor import Supervisor
from tests.support.children import READY, STAY, Heard, child, is_gone, number_in
from tests.support.waiting import eventually

QUICK = RestartPolicy(first=0.05, longest=0.2, stable_after=30.0)

WITH_HELPERS = """
    import os, pathlib, signal, subprocess, sys
    sleeper = [sys.executable, "-S", "-c", "import signal\\nwhile True: signal.pause()"]
    helper = subprocess.Popen(sleeper)
    agent = subprocess.Popen(sleeper, start_new_session=True, stdout=subprocess.DEVNULL)
    pathlib.Path("helper").write_text(f"{helper.pid}\\n")
    pathlib.Path("agent").write_text(f"{agent.pid}\\n")
    pathlib.Path(os.environ["MARK"]).touch()
    while True: signal.pause()
"""


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def supervisor(heard: Heard) -> Iterator[Supervisor]:
    with Supervisor(listener=heard, policy=QUICK) as supervisor:
        yield supervisor


def test_a_start_returns_when_every_child_is_ready(
    supervisor: Supervisor, heard: Heard, tmp_path: Path
) -> None:
    speaker = READY + "print('at work')\n" + STAY
    supervisor.start([child("a", tmp_path, speaker), child("b", tmp_path)])
    assert supervisor.states() == {"a": State.READY, "b": State.READY}
    eventually(lambda: heard.said("a") == ["at work"])


def test_children_are_gone_after_a_stop(supervisor: Supervisor, tmp_path: Path) -> None:
    supervisor.start([child("a", tmp_path), child("b", tmp_path)])
    pids = [supervisor.pid("a"), supervisor.pid("b")]
    supervisor.stop()
    assert all(pid is not None and is_gone(pid) for pid in pids)
    assert set(supervisor.states().values()) == {State.STOPPED}


def test_a_killed_child_is_started_again(
    supervisor: Supervisor, heard: Heard, tmp_path: Path
) -> None:
    supervisor.start([child("a", tmp_path)])
    first = supervisor.pid("a")
    supervisor.send("a", signal.SIGKILL)
    eventually(lambda: supervisor.starts("a") == 2 and supervisor.states()["a"] is State.READY)
    assert supervisor.pid("a") != first
    assert ("a", "a was ended by SIGKILL; starts again in 0.05 s") in heard.events


def test_a_child_that_keeps_ending_is_started_at_growing_intervals(
    supervisor: Supervisor, heard: Heard, tmp_path: Path
) -> None:
    supervisor.start([child("a", tmp_path, READY + "import time; time.sleep(0.2)")])
    eventually(lambda: supervisor.starts("a") >= 5)
    pauses = [text.split(" in ")[-1] for _, text in heard.events if "starts again" in text]
    assert pauses[:4] == ["0.05 s", "0.1 s", "0.2 s", "0.2 s"]


def test_a_child_that_fails_to_start_says_its_last_words_and_the_others_stop(
    heard: Heard, tmp_path: Path
) -> None:
    broken = child("broken", tmp_path, "import sys; print('no such table'); sys.exit(3)")
    supervisor = Supervisor([child("good", tmp_path), broken], listener=heard, policy=QUICK)
    with pytest.raises(StartFailed, match=r"broken ended with code 3(?s:.*)no such table"):
        supervisor.run()
    assert supervisor.states() == {"good": State.STOPPED, "broken": State.FAILED}
    assert supervisor.pid("good") is None
    assert supervisor.starts("broken") == 1


def test_a_child_that_is_never_ready_fails_the_start(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    with pytest.raises(StartFailed, match=r"mute was not ready within 0\.3 s"):
        supervisor.start([child("mute", tmp_path, STAY, ready_within=0.3)])


def test_a_program_that_cannot_be_run_fails_the_start(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    broken = child("broken", tmp_path, "raise SystemExit")
    missing = type(broken)(
        "missing",
        lambda: type(broken.command())(("/nonexistent/program",), {}, tmp_path),
        lambda: False,
    )
    with pytest.raises(StartFailed, match=r"ended with code 127\n  cannot run /nonexistent"):
        supervisor.start([missing])


def test_a_child_deaf_to_signals_is_killed(supervisor: Supervisor, tmp_path: Path) -> None:
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + READY + STAY
    supervisor.start([child("deaf", tmp_path, deaf, stop=(StopStep(signal.SIGTERM, 0.3),))])
    pid = supervisor.pid("deaf")
    supervisor.stop()
    assert pid is not None
    assert is_gone(pid)


def test_higher_tiers_stop_first(supervisor: Supervisor, tmp_path: Path) -> None:
    noting = """
        import os, pathlib, signal, sys, time
        def stop(*_):
            time.sleep(0.2)
            with open("order", "a") as order:
                order.write(os.path.basename(os.environ["MARK"]) + "\\n")
            sys.exit(0)
        signal.signal(signal.SIGTERM, stop)
        pathlib.Path(os.environ["MARK"]).touch()
        while True: signal.pause()
    """
    supervisor.start([child("server", tmp_path, noting, tier=0)])
    supervisor.start([child("front", tmp_path, noting, tier=2)])
    supervisor.start([child("worker", tmp_path, noting, tier=1)])
    supervisor.stop()
    assert (tmp_path / "order").read_text().split() == ["front.mark", "worker.mark", "server.mark"]


def test_what_a_killed_child_leaves_in_its_group_goes_and_what_it_detached_stays(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    supervisor.start([child("worker", tmp_path, WITH_HELPERS)])
    helper, agent = number_in(tmp_path / "helper")(), number_in(tmp_path / "agent")()
    assert helper
    assert agent
    supervisor.send("worker", signal.SIGKILL)
    try:
        eventually(lambda: is_gone(helper))
        eventually(lambda: supervisor.starts("worker") == 2)
        assert not is_gone(agent)
    finally:
        os.kill(agent, signal.SIGKILL)
    eventually(lambda: number_in(tmp_path / "agent")() not in (None, agent))
    os.kill(number_in(tmp_path / "agent")() or 0, signal.SIGKILL)


def test_a_stop_during_a_start_ends_it(supervisor: Supervisor, tmp_path: Path) -> None:
    threading.Timer(0.3, supervisor.ask_to_stop).start()
    with pytest.raises(StartInterrupted):
        supervisor.start([child("slow", tmp_path, STAY)])
    pid = supervisor.pid("slow")
    supervisor.stop()
    assert pid is not None
    assert is_gone(pid)


def test_a_stop_in_the_pause_before_a_restart_does_not_wait_for_it(
    heard: Heard, tmp_path: Path
) -> None:
    slow = RestartPolicy(first=60.0, longest=60.0)
    with Supervisor(listener=heard, policy=slow) as supervisor:
        supervisor.start([child("a", tmp_path)])
        supervisor.send("a", signal.SIGKILL)
        eventually(lambda: supervisor.states()["a"] is State.PAUSING)
        began = time.monotonic()
    assert time.monotonic() - began < 5


SCRIPT = """
import sys
from pathlib import Path
from kici_scaler.embedded.supervisor import Supervisor
from tests.integration.embedded.test_supervisor import WITH_HELPERS
from tests.support.children import Heard, child
folder = Path(sys.argv[1])
supervisor = Supervisor([child("worker", folder, WITH_HELPERS)], listener=Heard())
supervisor.run()
print("stopped in order")
"""


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        agent = number_in(tmp_path / "agent")
        eventually(lambda: agent() and (tmp_path / "worker.mark").exists(), within=20)
        yield process
        process.kill()
        os.kill(agent() or 0, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_in_order(
    supervised: subprocess.Popen[str], tmp_path: Path, number: signal.Signals
) -> None:
    helper = number_in(tmp_path / "helper")() or 0
    supervised.send_signal(number)
    out, _ = supervised.communicate(timeout=20)
    assert out == "stopped in order\n"
    assert is_gone(helper)


def test_children_do_not_outlive_a_killed_supervisor_but_agents_do(
    supervised: subprocess.Popen[str], tmp_path: Path
) -> None:
    helper, agent = number_in(tmp_path / "helper")() or 0, number_in(tmp_path / "agent")() or 0
    worker = os.getpgid(helper)
    supervised.kill()
    eventually(lambda: is_gone(worker))
    assert not is_gone(agent)
    if not is_gone(helper):  # it was started by the worker, which was killed with its supervisor
        os.kill(helper, signal.SIGKILL)


STUBBORN = """
import signal, sys
from pathlib import Path
from kici_scaler.embedded.process import StopStep
from kici_scaler.embedded.supervisor import Supervisor
from tests.support.children import READY, STAY, Heard, child
folder = Path(sys.argv[1])
deaf = '''import signal
signal.signal(signal.SIGTERM, lambda *_: open("asked", "w").close())
''' + READY + STAY
patient = (StopStep(signal.SIGTERM, 600.0),)
Supervisor([child("deaf", folder, deaf, stop=patient, tier=1)], listener=Heard()).run()
"""


def test_a_second_signal_kills_what_still_stops(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STUBBORN, str(tmp_path)], cwd=Path(__file__).parents[3]
    ) as process:
        eventually(lambda: (tmp_path / "deaf.mark").exists(), within=20)
        process.send_signal(signal.SIGINT)
        eventually(lambda: (tmp_path / "asked").exists(), within=20)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
