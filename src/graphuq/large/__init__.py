"""Work on matrices larger than memory (`graphuq.tall`): file stores, passes over blocks, and checkpoints."""
