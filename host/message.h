/*
 * Messages between a program and its agent (docs/agent.md 2): CBOR maps. The
 * writer appends items to a buffer; the parser accepts any input.
 */
#ifndef SRDMA_HOST_MESSAGE_H
#define SRDMA_HOST_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

#include "srdma/connection.h"

enum {
	SRDMA_MESSAGE_LENGTH = 4, /* bytes of the length before a message */
	SRDMA_AGENT_MAX = 1 << 20,
};

/* A message with its length in front. Zeroed, it is empty. */
struct srdma_message {
	uint8_t *data;
	size_t len, room;
	int failed; /* 1: no memory, or longer than SRDMA_AGENT_MAX */
};

void srdma_message_map(struct srdma_message *w, size_t pairs);
void srdma_message_array(struct srdma_message *w, size_t items);
void srdma_message_uint(struct srdma_message *w, uint64_t value);
void srdma_message_text(struct srdma_message *w, const char *text);
void srdma_message_bytes(struct srdma_message *w, const void *data, size_t len);
/* Completes the length. 0 or -ENOMEM. */
int srdma_message_finish(struct srdma_message *w);
/* Wipes and frees the buffer: settings contain the token of a leg. */
void srdma_message_free(struct srdma_message *w);

/* An event of the agent; fields that it has not are zero. `event`, `code` and
 * `text` are cut if they are too long; an identity is not. */
struct srdma_agent_event {
	char event[16]; /* "ready" */
	char code[33];	/* error */
	char text[400];
	uint64_t arrival;
	int has_arrival;
	uint64_t wish; /* renewed */
	/* listening, at an address of the agent; serving; called: of the
	 * caller */
	uint16_t port;
	uint64_t talk; /* called */
	int has_talk;
	uint8_t gid[SRDMA_GID_LEN]; /* called: of the caller */
	int remote;  /* opened: 1 if worker and agent are elsewhere */
	int lasting; /* opened: 1 if the connection may be made again */
	/* identity also: arrived, called; data also: called, heard */
	struct srdma_connection_info peer;
};

/* Parses a message without its length. 0, or -EPROTO: it is not a CBOR map, has
 * no event, more than 1,024 arrays and maps, or one with more items than the message
 * has bytes; a field is of another type or size, or an identity has a NUL. */
int srdma_message_parse(struct srdma_agent_event *e, const uint8_t *in,
			size_t len);

#endif
