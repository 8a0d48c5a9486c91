"""Use cases: one a module, a thin shell around decisions and rows."""
