"""The status page: made on the server, closed without an operator's key."""
