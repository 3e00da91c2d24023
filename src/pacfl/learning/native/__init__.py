"""Small nets compiled to machine code: the local training of a client is one call."""
