"""Models as vectors, and local training of one client. The only layer that knows torch."""
