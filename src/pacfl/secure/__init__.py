"""Secure aggregation: a server learns the sum of what clients send, and nothing else of it (Bonawitz and others, 2017).

Pure functions on bytes and arrays; who sends messages is no matter of this package. `client` and `server` are the two
sides of a session, in the order of its stages; docs/privacy.md explains what they protect and what not.
"""
