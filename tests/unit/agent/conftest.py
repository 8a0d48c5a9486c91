from __future__ import annotations

from hypothesis import HealthCheck, settings

# A machine that runs other tests beside these is slow now and then; that is no failure.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
