"""Readers of the file formats that data sets are published in, in the folders where people already have them."""
