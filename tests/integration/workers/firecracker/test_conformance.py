"""The suite that every backend passes, on microVMs that a recorder plays (or on real ones)."""

from __future__ import annotations

from tests.conformance import test_destroy, test_looking, test_races, test_secrets, test_spawn

for _module in (test_spawn, test_destroy, test_looking, test_secrets, test_races):
    globals().update({key: each for key, each in vars(_module).items() if key.startswith("test_")})
