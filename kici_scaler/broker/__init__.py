"""Everything that lives on Redis; none of it is missed when it is lost, log lines apart."""
