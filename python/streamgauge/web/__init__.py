"""Pages that the lab serves while it runs: where, to whom, and the server under them. What is on a page is the business of whoever serves it."""
