#!/usr/bin/python3 -I
"""What a microVM runs first: it makes the root writable, asks what it is, and runs the agent.

The root is read-only and shared by all guests; what is written goes to the second drive, as an
overlay. The guest learns all it needs from Firecracker's metadata service, closes that to
everyone who comes after, and resets when the agent has ended, after saying with which code.

Standard library only; runs as process 1.
"""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

METADATA = "http://169.254.169.254"
EXIT_MARK = "kici-agent-exit:"
"""What the host reads the exit code by; see workers/firecracker/console.py."""
WAIT_SECONDS = 60.0
Told = dict[str, Any]
"""What the host said; its values are texts, but for the variables, which are a table of texts."""
LINUX_REBOOT_CMD_RESTART = 0x01234567
AGENT = "/usr/local/bin/kici-agent"
STATE = "/run/kici-agent"
TOKEN = STATE + "/token"

VARIABLES = {
    "kici-orchestrator-url": "KICI_ORCHESTRATOR_URL",
    "kici-agent-id": "KICI_AGENT_ID",
    "kici-labels": "KICI_LABELS",
    "kici-scaler-managed": "KICI_SCALER_MANAGED",
    "kici-backpressure-mode": "KICI_BACKPRESSURE_MODE",
}


def main() -> int:
    """Everything, in order; returns the agent's exit code."""
    make_writable()
    mount_the_rest()
    os.environ.clear()
    os.environ["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    run("ip", "link", "set", "lo", "up")
    run("ip", "route", "replace", "169.254.169.254/32", "dev", "eth0")
    told = ask_until_told()
    close_metadata()
    configure(told)
    return wait_for(start_agent(told))


def make_writable() -> None:
    """Put the second drive over the root, and go there."""
    mount("-t", "ext4", "-o", "noatime", "/dev/vdb", "/overlay")
    for name in ("upper", "work", "root"):
        Path("/overlay", name).mkdir(exist_ok=True)
    layers = "lowerdir=/,upperdir=/overlay/upper,workdir=/overlay/work"
    mount("-t", "overlay", "-o", layers, "overlay", "/overlay/root")
    os.chroot("/overlay/root")
    os.chdir("/")


def mount_the_rest() -> None:
    """What programs expect to find."""
    for kind, place in (("proc", "proc"), ("sysfs", "sys"), ("devtmpfs", "dev"), ("tmpfs", "run")):
        Path("/", place).mkdir(exist_ok=True)
        mount("-t", kind, kind, "/" + place)
    for kind, place in (("devpts", "/dev/pts"), ("tmpfs", "/dev/shm"), ("tmpfs", "/tmp")):
        Path(place).mkdir(exist_ok=True)
        mount("-t", kind, "-o", "mode=1777" if kind == "tmpfs" else "mode=0620", kind, place)


def ask_until_told() -> Told:
    """What the host has to say; it says it a moment after this machine has started."""
    until = time.monotonic() + WAIT_SECONDS
    while True:
        with contextlib.suppress(OSError, ValueError):
            told = ask()
            if told.get("kici-orchestrator-url"):
                return told
        if time.monotonic() > until:
            raise SystemExit("the host did not say what this machine is for")
        time.sleep(0.05)


def ask() -> Told:
    """The document as it is now; it takes a session, as the second version of the service has."""
    session = request("PUT", "/latest/api/token", {"X-metadata-token-ttl-seconds": "60"})
    headers = {"X-metadata-token": session.decode(), "Accept": "application/json"}
    answer: Told = json.loads(request("GET", "/latest/meta-data", headers))
    return answer


def request(method: str, path: str, headers: dict[str, str]) -> bytes:
    """One call of the metadata service."""
    asked = urllib.request.Request(METADATA + path, method=method, headers=headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(asked, timeout=2) as said:
        content: bytes = said.read()
        return content


def close_metadata() -> None:
    """Let nobody on this machine ask any more: the host clears it too, a moment later."""
    rules = "add table ip kici; add chain ip kici out { type filter hook output priority 0; }; "
    run("nft", rules + "add rule ip kici out ip daddr 169.254.169.254 drop")
    run("ip", "route", "replace", "blackhole", "169.254.169.254/32")


def configure(told: Told) -> None:
    """Names: the host's resolver is reachable on the bridge, and nothing else of it is."""
    Path("/etc/resolv.conf").write_text(f"nameserver {told['kici-gateway-ip']}\n")
    Path("/proc/sys/kernel/hostname").write_text(told["kici-agent-id"][:64])


def start_agent(told: Told) -> int:
    """Start it with what it was told; its token is in a file that it deletes."""
    environment = dict(told.get("kici-env") or {})
    environment.update((VARIABLES[key], told[key]) for key in VARIABLES if told.get(key))
    environment.update(
        KICI_EXECUTION_MODE="firecracker",
        KICI_AGENT_STATE_DIR=STATE + "/state",
        KICI_PORT="0",
        HOME="/root",
    )
    environment.setdefault("PATH", os.environ["PATH"])
    Path(STATE, "state").mkdir(mode=0o700, parents=True, exist_ok=True)
    if told.get("kici-agent-token"):
        handle = os.open(TOKEN, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(told["kici-agent-token"])
        environment["KICI_AGENT_TOKEN_FILE"] = TOKEN
    return subprocess.Popen([AGENT], env=environment).pid


def wait_for(agent: int) -> int:
    """The agent's exit code; as process 1, whoever else ends is buried on the way.

    Ctrl-Alt-Del, with which the host asks this machine to end, is passed on as TERM.
    """
    signal.signal(signal.SIGINT, lambda *_: os.kill(agent, signal.SIGTERM))
    with contextlib.suppress(OSError):
        Path("/proc/sys/kernel/ctrl-alt-del").write_text("0")
    while True:
        pid, status = os.wait()
        if pid == agent:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def mount(*arguments: str) -> None:
    """Mount, or end."""
    subprocess.run(["/bin/mount", "-n", *arguments], check=True)


def run(*command: str) -> None:
    """Run something that may fail; it says itself why."""
    subprocess.run(command, check=False)


def reset(code: int | None) -> None:
    """Tell the agent's exit code, if one ran; put everything on the drive, and end this machine."""
    sys.stdout.flush()
    if code is not None:
        print(f"{EXIT_MARK} {code}", flush=True)
    os.sync()
    ctypes.CDLL(None).reboot(LINUX_REBOOT_CMD_RESTART)


if __name__ == "__main__":
    CODE = None
    try:
        CODE = main()
    except BaseException as error:  # noqa: BLE001 - process 1 must not end, whatever it is
        print(f"init: failed to start the agent: {type(error).__name__}: {error}", flush=True)
    finally:
        reset(CODE)
