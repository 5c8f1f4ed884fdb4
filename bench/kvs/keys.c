#include "keys.h"

#include <errno.h>
#include <string.h>

#include "mix.h"

void kvs_key_make(uint8_t key[KVS_KEY_LEN], uint64_t id)
{
	const uint64_t w[2] = { kvs_scramble(id), kvs_mix(id, KVS_KEY_LEN) };

	memcpy(key, w, sizeof(w));
}

void kvs_value_make(uint8_t value[KVS_VALUE_LEN], uint64_t id, uint64_t version)
{
	const uint64_t w[4] = { id, version, kvs_mix(id, version),
				kvs_scramble(id ^ version << 32) };

	memcpy(value, w, sizeof(w));
}

int kvs_value_read(const uint8_t value[KVS_VALUE_LEN], uint64_t id,
		   uint64_t *version)
{
	uint8_t right[KVS_VALUE_LEN];

	memcpy(version, value + sizeof(id), sizeof(*version));
	kvs_value_make(right, id, *version);
	return memcmp(value, right, sizeof(right)) ? -EBADMSG : 0;
}
