"""Deployment on real machines: keys, certificates, start scripts, and a test on this machine."""
