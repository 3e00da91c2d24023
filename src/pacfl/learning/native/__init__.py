"""Small nets compiled to machine code: a client's whole local training is one call."""
