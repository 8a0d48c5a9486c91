"""Commands on real servers and roles."""
