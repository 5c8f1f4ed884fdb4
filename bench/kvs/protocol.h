/*
 * What clients and the server of the key-value store say. A request is
 * written into a slot of the server's memory, where the server finds it by
 * looking (HERD, SIGCOMM 2014); the answer is a SEND. Integers have the
 * machine's byte order: both ends are of one kind.
 *
 *   slot, 64 bytes      value 32 | key 16 | check 8 | sequence 4 | opcode 1 |
 *                       length 1 | zero 2
 *   answer, 8 or 40     sequence 4 | status 1 | length 1 | zero 2 | value 32
 *
 * A request lies at the end of its slot, so that a GET writes its last half
 * only. Request n of a connection, from 1 on, goes to slot n modulo their
 * number, and only after the request before it in that slot was answered.
 *
 * Nothing says in which order the bytes of a WRITE become visible. The check
 * covers all others of a request, so that a torn one is no request: it is
 * looked at again. It is no protection: that is the packet's.
 */
#ifndef KVS_PROTOCOL_H
#define KVS_PROTOCOL_H

#include <stdint.h>

enum kvs_lengths {
	KVS_KEY_LEN = 16,
	KVS_VALUE_LEN = 32,
	KVS_SLOT_LEN = 64,
	KVS_GET_AT = 32, /* where the request of a GET begins in its slot */
	KVS_ANSWER_LEN = 40,
	KVS_ANSWER_HEADER = 8, /* all there is of an answer without a value */
};

enum kvs_opcode { KVS_GET = 1, KVS_PUT = 2, KVS_BYE = 3 };

enum kvs_status {
	KVS_OK = 0,
	KVS_NOT_FOUND = 1,
	KVS_FULL = 2, /* no room for another key; nothing was evicted */
	KVS_BAD = 3,  /* opcode or length are none of the above */
};

struct kvs_request {
	uint8_t value[KVS_VALUE_LEN];
	uint8_t key[KVS_KEY_LEN];
	uint64_t check;
	uint32_t sequence;
	uint8_t opcode; /* enum kvs_opcode */
	uint8_t length; /* of the value: KVS_VALUE_LEN with a PUT, else 0 */
	uint8_t zero[2];
};

struct kvs_answer {
	uint32_t sequence; /* of the request */
	uint8_t status;	   /* enum kvs_status */
	uint8_t length;	   /* of the value: KVS_VALUE_LEN or 0 */
	uint8_t zero[2];
	uint8_t value[KVS_VALUE_LEN];
};

_Static_assert(sizeof(struct kvs_request) == KVS_SLOT_LEN, "a slot");
_Static_assert(sizeof(struct kvs_answer) == KVS_ANSWER_LEN, "an answer");

/* Complete r: its check. Returns where in the slot its bytes begin. */
uint32_t kvs_request_seal(struct kvs_request *r);

/*
 * Is the request of this sequence in the slot, whole? Then 1, and *out is a
 * private copy; else 0. The writer may be at work on the slot.
 */
int kvs_request_take(struct kvs_request *out, const void *slot,
		     uint32_t sequence);

/* Does a request say what it may? Its value is there if it is a PUT. */
int kvs_request_legal(const struct kvs_request *r);

/* Bytes of an answer to be sent. */
uint32_t kvs_answer_len(const struct kvs_answer *a);

/* Are len bytes a whole answer to this sequence? */
int kvs_answer_legal(const struct kvs_answer *a, uint32_t len,
		     uint32_t sequence);

#endif
