/*
 * Keys and values of the benchmark. Keys are numbered from 0. A value names its
 * key and the PUT that wrote it, so that a wrong or torn value is detected.
 */
#ifndef KVS_KEYS_H
#define KVS_KEYS_H

#include <stdint.h>

#include "protocol.h"

void kvs_key_make(uint8_t key[KVS_KEY_LEN], uint64_t id);

/* version: number of the PUT that writes it; 0: initial value. */
void kvs_value_make(uint8_t value[KVS_VALUE_LEN], uint64_t id,
		    uint64_t version);

/* Returns 0 and the version, or -EBADMSG if this is not a value of the key. */
int kvs_value_read(const uint8_t value[KVS_VALUE_LEN], uint64_t id,
		   uint64_t *version);

#endif
