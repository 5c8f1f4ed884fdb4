"""`srdma bench keys`, `srdma bench sessions`: the cost of key set-up and of sessions in agents."""
