"""Internal: posting, polling, waiting, and the legs to the worker."""
