"""`python -m kici_scaler.agent`."""

import sys

from kici_scaler.agent.main import main

sys.exit(main())
