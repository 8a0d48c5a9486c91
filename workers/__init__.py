"""How compute is made, found and taken away: the backend contract and the backends."""
