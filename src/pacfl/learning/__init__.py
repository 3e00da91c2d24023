"""Models as vectors, and local training of one client. The only package that computes with torch."""
