"""`srdma bench peers`: srdma compared with TLS, redis and memcached."""
