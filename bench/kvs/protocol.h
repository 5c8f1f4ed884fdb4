/*
 * Messages of the key-value store. A client writes a request into a slot in the
 * server's memory, which the server polls (HERD, SIGCOMM 2014); the response is
 * a SEND. Integers are in host byte order: both ends must have the same.
 *
 *   slot, 64 bytes      value 32 | key 16 | check 8 | sequence 4 | opcode 1 |
 *                       length 1 | zero 2
 *   response, 8 or 40   sequence 4 | status 1 | length 1 | zero 2 | value 32
 *
 * A request is aligned to the end of its slot, so that a GET writes only the
 * second half. Request n of a connection, counted from 1, uses slot (n - 1)
 * modulo the number of slots, and only after the response to the previous
 * request in that slot.
 *
 * The order in which the bytes of a WRITE become visible is unspecified. The
 * check covers all other bytes of a request: a torn request fails the check and
 * is polled again. The check is not a protection against attackers; packet
 * protection is.
 */
#ifndef KVS_PROTOCOL_H
#define KVS_PROTOCOL_H

#include <stdint.h>

enum kvs_lengths {
	KVS_KEY_LEN = 16,
	KVS_VALUE_LEN = 32,
	KVS_SLOT_LEN = 64,
	KVS_GET_AT = 32, /* offset of a GET request in its slot */
	KVS_ANSWER_LEN = 40,
	KVS_ANSWER_HEADER = 8, /* length of a response without a value */
};

enum kvs_opcode { KVS_GET = 1, KVS_PUT = 2, KVS_BYE = 3 };

enum kvs_status {
	KVS_OK = 0,
	KVS_NOT_FOUND = 1,
	KVS_FULL = 2, /* no room for a new key; nothing was evicted */
	KVS_BAD = 3,  /* invalid opcode or length */
};

struct kvs_request {
	uint8_t value[KVS_VALUE_LEN];
	uint8_t key[KVS_KEY_LEN];
	uint64_t check;
	uint32_t sequence;
	uint8_t opcode; /* enum kvs_opcode */
	uint8_t length; /* length of the value: KVS_VALUE_LEN for a PUT, else
			   0 */
	uint8_t zero[2];
};

struct kvs_answer {
	uint32_t sequence; /* sequence of the request */
	uint8_t status;	   /* enum kvs_status */
	uint8_t length;	   /* length of the value: KVS_VALUE_LEN or 0 */
	uint8_t zero[2];
	uint8_t value[KVS_VALUE_LEN];
};

_Static_assert(sizeof(struct kvs_request) == KVS_SLOT_LEN,
	       "a request must fill a slot");
_Static_assert(sizeof(struct kvs_answer) == KVS_ANSWER_LEN,
	       "the layout of a response must have no padding");

/*
 * Set the check of r. Returns the offset in the slot at which its bytes begin.
 */
uint32_t kvs_request_seal(struct kvs_request *r);

/*
 * Returns 1 and a private copy in *out if the slot holds the complete request
 * with this sequence, else 0. The client may write the slot concurrently.
 */
int kvs_request_take(struct kvs_request *out, const void *slot,
		     uint32_t sequence);

/* 1 if opcode and lengths of a request are valid. */
int kvs_request_legal(const struct kvs_request *r);

/* Bytes of a response to send. */
uint32_t kvs_answer_len(const struct kvs_answer *a);

/* 1 if len bytes are a complete response to this sequence. */
int kvs_answer_legal(const struct kvs_answer *a, uint32_t len,
		     uint32_t sequence);

#endif
