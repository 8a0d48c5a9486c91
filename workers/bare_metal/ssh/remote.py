"""What runs on a machine before the supervisor does: files are checked, then used.

Each script is one Python statement on the command line, so that any login shell passes it on
unchanged. It carries names and digests, never content or secrets; those go by standard input.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

PYTHON = "python3"
MISSING = 97
"""Exit status of a machine that does not hold the very file it was asked to use."""

_PATH = """\
import hashlib, os, sys
folder = os.path.expanduser(sys.argv[1])
path = os.path.join(folder, sys.argv[2])
digest = sys.argv[3]
def held():
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest() == digest
    except OSError:
        return False
"""

_LAUNCH = """\
if not held():
    sys.exit(97)
sys.path.insert(0, path)
from supervisor.main import run
sys.exit(run(["--root", folder, sys.argv[4]]))
"""

_FIND = """\
if not held():
    sys.exit(97)
print(path)
"""

_PLACE = """\
content = sys.stdin.buffer.read()
if hashlib.sha256(content).hexdigest() != digest:
    sys.exit("the file arrived damaged")
fresh = path + "." + os.urandom(4).hex()
try:
    os.makedirs(folder, 0o700, exist_ok=True)
    with open(fresh, "xb") as file:
        os.fchmod(file.fileno(), 0o700)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)
except OSError as error:
    try:
        os.unlink(fresh)
    except OSError:
        pass
    sys.exit("%s cannot be written: %s" % (path, error.strerror or error))
print(path)
"""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file that lies on machines under the name of its content."""

    stem: str
    content: bytes
    digest: str
    """SHA-256 of the content, in hex."""

    @property
    def file_name(self) -> str:
        """Its name in the folder; another content has another one."""
        return f"{self.stem}-{self.digest[:16]}.pyz"


def launch(folder: str, supervisor: Artifact, command: str) -> str:
    """The command line that runs the supervisor if it is the right one, else ends as missing."""
    return _python(_PATH + _LAUNCH, folder, supervisor.file_name, supervisor.digest, command)


def find(folder: str, artifact: Artifact) -> str:
    """Prints the path of a file that is there and right, else ends as missing."""
    return _python(_PATH + _FIND, folder, artifact.file_name, artifact.digest)


def place(folder: str, artifact: Artifact) -> str:
    """Reads the content from standard input and puts it into its place in one step."""
    return _python(_PATH + _PLACE, folder, artifact.file_name, artifact.digest)


def _python(script: str, *arguments: str) -> str:
    return shlex.join([PYTHON, "-I", "-S", "-c", f"exec({script!r})", *arguments])
