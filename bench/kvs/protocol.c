#include "protocol.h"

#include <stddef.h>
#include <string.h>

#include "mix.h"

enum { SEQUENCE_AT = offsetof(struct kvs_request, sequence) };

/*
 * Checksum over pairs of words: value 0..3, key 4 and 5, and the word after the
 * check.
 */
static uint64_t check_of(const struct kvs_request *r)
{
	uint64_t w[8], sum;

	memcpy(w, r, sizeof(w));
	sum = kvs_mix(w[4], w[5]) ^ kvs_mix(w[7], KVS_SLOT_LEN);
	if (r->length)
		sum ^= kvs_mix(w[0], w[1]) + kvs_mix(w[2], ~w[3]);
	return sum;
}

uint32_t kvs_request_seal(struct kvs_request *r)
{
	r->check = check_of(r);
	return r->length ? 0 : KVS_GET_AT;
}

int kvs_request_take(struct kvs_request *out, const void *slot,
		     uint32_t sequence)
{
	const uint8_t *at = slot;
	const uint32_t *said = (const void *)(at + SEQUENCE_AT);

	if (__atomic_load_n(said, __ATOMIC_ACQUIRE) != sequence)
		return 0;
	memcpy(out, slot, sizeof(*out));
	return out->sequence == sequence && out->check == check_of(out);
}

int kvs_request_legal(const struct kvs_request *r)
{
	if (r->zero[0] || r->zero[1])
		return 0;
	switch (r->opcode) {
	case KVS_PUT:
		return r->length == KVS_VALUE_LEN;
	case KVS_GET:
	case KVS_BYE:
		return r->length == 0;
	default:
		return 0;
	}
}

uint32_t kvs_answer_len(const struct kvs_answer *a)
{
	return KVS_ANSWER_HEADER + a->length;
}

int kvs_answer_legal(const struct kvs_answer *a, uint32_t len,
		     uint32_t sequence)
{
	return len >= KVS_ANSWER_HEADER && a->sequence == sequence &&
	       a->status <= KVS_BAD &&
	       (a->length == 0 || a->length == KVS_VALUE_LEN) &&
	       len == kvs_answer_len(a);
}
