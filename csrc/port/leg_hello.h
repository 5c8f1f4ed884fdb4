/*
 * Private data of the connection requests of legs and wires over verbs, and of
 * their refusals (docs/local-interface.md 2.4), for both ends:
 *
 * REQ: "srdma" 5 | version 1 | kind 1 | zero 1 | token 16 | ring address 8 |
 * ring rkey 4 | records 4 | zero 16. The CM pads it: it arrives at full length.
 * REJ: "srdma" 5 | version 1 | reason 1.
 */
#ifndef SRDMA_PORT_LEG_HELLO_H
#define SRDMA_PORT_LEG_HELLO_H

#define SRDMA_HELLO_MAGIC     "srdma"
#define SRDMA_HELLO_MAGIC_LEN 5

enum {
	SRDMA_HELLO_LEN = 56,
	SRDMA_HELLO_AT_VERSION = 5, /* of REQ and REJ */
	SRDMA_HELLO_AT_KIND = 6,
	SRDMA_HELLO_AT_ZERO = 7,
	SRDMA_HELLO_AT_TOKEN = 8,
	SRDMA_HELLO_AT_RING_ADDR = 24,
	SRDMA_HELLO_AT_RING_RKEY = 32,
	SRDMA_HELLO_AT_RING = 36,
	SRDMA_HELLO_VERSION = 1,
	/* READs and atomics of the worker in flight to a host, at most; the
	 * devices of both may permit fewer */
	SRDMA_HELLO_READS = 16,
	SRDMA_REFUSAL_LEN = 7,
	SRDMA_REFUSAL_AT_REASON = 6,
};

enum srdma_hello_kind { SRDMA_HELLO_KIND_LEG = 1, SRDMA_HELLO_KIND_WIRE = 2 };

enum srdma_hello_refusal {
	SRDMA_REFUSE_HELLO = 1,
	SRDMA_REFUSE_TOKEN = 2,
	SRDMA_REFUSE_LIMIT = 3,
};

#endif
