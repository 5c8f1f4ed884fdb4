"""`srdma demo`: two hosts, two workers and a tap between the workers, on one machine."""
