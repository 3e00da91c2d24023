"""Rounds of training between a server and clients: the interface of algorithms, the loop, the local backend."""
