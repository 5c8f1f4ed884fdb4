"""`srdma bench peers`: srdma beside TLS, redis and memcached."""
