"""Active learning in the browser: a page that asks for the most informative labels; store, model and server."""
