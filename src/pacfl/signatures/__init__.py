"""Who is alike? Signature files, the data they are made from, and the folder in which a federation is kept."""
