"""Posting, polling and waiting, and the legs below them. Not public."""
