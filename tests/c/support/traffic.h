/*
 * Fixture for session tests: one datagram at a time from one end to the other.
 */
#ifndef SRDMA_TEST_TRAFFIC_H
#define SRDMA_TEST_TRAFFIC_H

#include "support/pair.h"

/* datagram sealed last, its decrypted payload, and the payload to seal */
static uint8_t out[SRDMA_MAX_PACKET], plain[SRDMA_MAX_PAYLOAD];
static uint8_t text[SRDMA_MAX_PAYLOAD];

static inline struct protection none(void)
{
	return (struct protection){ .level = SRDMA_LEVEL_NONE };
}

static inline struct protection by_name(const char *name, uint8_t level)
{
	const struct srdma_suite *s = srdma_suite_by_name(name);

	return (struct protection){ .suite = s,
				    .level = level,
				    .tag_len = s->tag_len };
}

static inline struct protection gcm(void)
{
	return by_name("aes-128-gcm", SRDMA_LEVEL_AEAD);
}

/* Seals a SEND_ONLY of len bytes as request id. */
static inline int send(struct srdma_session *s, uint64_t id, uint32_t len)
{
	struct srdma_packet p = { .opcode = SRDMA_OP_SEND_ONLY,
				  .request_id = id,
				  .payload_len = len };

	return srdma_session_seal(s, &p, text, out, sizeof(out));
}

static inline int receive(struct srdma_session *s, int len)
{
	struct srdma_packet p;

	return srdma_session_open(s, &p, out, (size_t)len, plain);
}

/* cmocka's group setup */
static inline int fill_text(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (uint8_t)(i * 7 + 1);
	return 0;
}

#endif
