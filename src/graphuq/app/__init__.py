"""Files of people in, pages and folders for people out: the command line and what stands behind it."""
