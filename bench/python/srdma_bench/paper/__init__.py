"""`srdma bench paper`: the tables and figures of the paper, measured here."""
