"""Matrices larger than memory, `graphuq.tall`, at work: stores to read, passes over blocks, and what survives a kill."""
