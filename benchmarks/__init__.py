"""Claims about speed and memory, each measured against a named peer in the same run."""
