#!/bin/sh
# Makes the virtual environment and fills it from the lock: `scripts/setup.sh VENV LOCK`.
# Needs python3 >= 3.11 (any name on the path, or PYTHON=...); says what is missing otherwise.
set -eu

venv=$1
lock=$2

fail() {
  printf 'setup: %s\n' "$1" >&2
  shift
  for line in "$@"; do printf '       %s\n' "$line" >&2; done
  exit 1
}

is_recent() {
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
  if [ -n "${PYTHON:-}" ]; then
    is_recent "$PYTHON" || fail "PYTHON=$PYTHON is not a Python of 3.11 or newer." \
      "Point PYTHON at one, or leave it unset to search the path."
    python=$PYTHON
    return
  fi
  for python in python3 python3.14 python3.13 python3.12 python3.11; do
    if is_recent "$python"; then return; fi
  done
  found=$(python3 --version 2>/dev/null || echo "no python3")
  fail "Python 3.11 or newer is needed; found $found on the path." \
    "Install one, or point at it: make setup PYTHON=/path/to/python3.12"
}

has_pip() {
  "$venv/bin/python" -m pip --version >/dev/null 2>&1
}

# Debian splits ensurepip from python3, so a plain `venv` may end without pip; virtualenv
# brings its own, and a pip outside can install one into the environment.
make_environment() {
  if "$python" -m venv --clear "$venv" >/dev/null 2>&1 && has_pip; then return; fi
  if "$python" -m virtualenv --quiet --clear "$venv" >/dev/null 2>&1 && has_pip; then return; fi
  if "$python" -m venv --clear --without-pip "$venv" >/dev/null 2>&1 &&
    "$python" -m pip --python "$venv/bin/python" install --quiet pip >/dev/null 2>&1 &&
    has_pip; then return; fi
  rm -rf "$venv"
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  fail "$python cannot make a virtual environment (its venv or ensurepip module is missing)." \
    "Debian, Ubuntu: apt-get install python${version}-venv" \
    "elsewhere:      $python -m pip install --user virtualenv" \
    "then run make setup again."
}

environment_works() {
  [ -x "$venv/bin/python" ] && is_recent "$venv/bin/python" && has_pip
}

if ! environment_works; then
  find_python
  echo "setup: making $venv with $("$python" --version)"
  make_environment
fi

echo "setup: installing the locked packages"
"$venv/bin/python" -m pip install --quiet --no-deps --require-hashes --requirement "$lock" ||
  fail "the locked packages could not be installed (the reason stands above)." \
    "A machine without a way to the package registry can use a mirror: set PIP_INDEX_URL."
