"""Twenty real jobs through a whole installation, with an agent and a worker killed on the way."""
