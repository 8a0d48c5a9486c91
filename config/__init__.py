"""Settings read at the edge (environment) and handed inwards."""
