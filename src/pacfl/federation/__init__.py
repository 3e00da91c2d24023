"""Rounds of learning between a server and clients: the interface, the loop, and the ways to reach clients."""
