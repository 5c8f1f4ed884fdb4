"""Options and fixtures shared by all Python tests."""
