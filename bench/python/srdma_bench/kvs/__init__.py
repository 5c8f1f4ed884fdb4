"""A key-value store over srdma (bench/kvs)."""
