/*
 * Keys and values of the benchmark: key number id from 0 on; the value says
 * of which key and of which PUT it is, so that a wrong or torn one is known.
 */
#ifndef KVS_KEYS_H
#define KVS_KEYS_H

#include <stdint.h>

#include "protocol.h"

void kvs_key_make(uint8_t key[KVS_KEY_LEN], uint64_t id);

/* version: of the PUT that writes it; 0: what the store begins with. */
void kvs_value_make(uint8_t value[KVS_VALUE_LEN], uint64_t id,
		    uint64_t version);

/* 0, and the version; -EBADMSG: no value of this key. */
int kvs_value_read(const uint8_t value[KVS_VALUE_LEN], uint64_t id,
		   uint64_t *version);

#endif
