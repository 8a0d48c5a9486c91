"""The suite that every backend passes; `docs/backends.md` says how to run it on another one."""
