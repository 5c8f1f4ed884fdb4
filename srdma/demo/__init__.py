"""`srdma demo`: two hosts, two workers and a man in the middle on one machine."""
