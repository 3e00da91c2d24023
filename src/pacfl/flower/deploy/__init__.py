"""A federation on real machines: keys, certificates, start scripts, and a first try on this one."""
