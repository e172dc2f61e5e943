"""A page on which a person labels the rows that teach the model most: answers kept on disk, a model, a server."""
