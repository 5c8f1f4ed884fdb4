#include "host/message.h"

#include <cbor.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

enum { FIRST_ROOM = 4096, HEAD_MAX = 9 /* bytes of the head of an item */ };

/* --- writing ------------------------------------------------------------- */

/* Makes room for len more bytes, and for the length in front. */
static int reserve(struct srdma_message *w, size_t len)
{
	size_t room = w->room ? w->room : FIRST_ROOM;
	uint8_t *data;

	if (!w->len)
		w->len = SRDMA_MESSAGE_LENGTH;
	if (w->failed || len > SRDMA_AGENT_MAX ||
	    w->len + len > SRDMA_AGENT_MAX) {
		w->failed = 1;
		return 0;
	}
	while (room < w->len + len)
		room *= 2;
	if (room == w->room)
		return 1;
	data = malloc(room); /* not realloc(): the old buffer is wiped */
	if (!data) {
		w->failed = 1;
		return 0;
	}
	if (w->data) {
		memcpy(data, w->data, w->len);
		srdma_wipe(w->data, w->len);
		free(w->data);
	}
	w->data = data;
	w->room = room;
	return 1;
}

typedef size_t head_encoder(size_t, unsigned char *, size_t);

static void head(struct srdma_message *w, head_encoder *encode, size_t n)
{
	if (reserve(w, HEAD_MAX))
		w->len += encode(n, w->data + w->len, HEAD_MAX);
}

static void raw(struct srdma_message *w, const void *data, size_t len)
{
	if (!len || !reserve(w, len))
		return;
	memcpy(w->data + w->len, data, len);
	w->len += len;
}

void srdma_message_map(struct srdma_message *w, size_t pairs)
{
	head(w, cbor_encode_map_start, pairs);
}

void srdma_message_array(struct srdma_message *w, size_t items)
{
	head(w, cbor_encode_array_start, items);
}

void srdma_message_uint(struct srdma_message *w, uint64_t value)
{
	if (reserve(w, HEAD_MAX))
		w->len += cbor_encode_uint(value, w->data + w->len, HEAD_MAX);
}

void srdma_message_text(struct srdma_message *w, const char *text)
{
	head(w, cbor_encode_string_start, strlen(text));
	raw(w, text, strlen(text));
}

void srdma_message_bytes(struct srdma_message *w, const void *data, size_t len)
{
	head(w, cbor_encode_bytestring_start, len);
	raw(w, data, len);
}

int srdma_message_finish(struct srdma_message *w)
{
	if (w->failed || !w->data)
		return -ENOMEM;
	srdma_store32(w->data, (uint32_t)(w->len - SRDMA_MESSAGE_LENGTH));
	return 0;
}

void srdma_message_free(struct srdma_message *w)
{
	if (w->data)
		srdma_wipe(w->data, w->len);
	free(w->data);
	memset(w, 0, sizeof(*w));
}

/* --- parsing ------------------------------------------------------------- */

static int get_text(char *out, size_t room, const cbor_item_t *item)
{
	size_t len;

	if (!cbor_isa_string(item) || !cbor_string_is_definite(item))
		return -EPROTO;
	len = cbor_string_length(item);
	if (len > room - 1)
		len = room - 1;
	memcpy(out, cbor_string_handle(item), len);
	out[len] = '\0';
	return 0;
}

/* As get_text(), but text that is too long or has a NUL is illegal. */
static int get_whole_text(char *out, size_t room, const cbor_item_t *item)
{
	size_t len;

	if (!cbor_isa_string(item) || !cbor_string_is_definite(item))
		return -EPROTO;
	len = cbor_string_length(item);
	if (len > room - 1 || memchr(cbor_string_handle(item), 0, len))
		return -EPROTO;
	return get_text(out, room, item);
}

static int get_uint(uint64_t *out, uint64_t most, const cbor_item_t *item)
{
	if (!cbor_isa_uint(item) || cbor_get_int(item) > most)
		return -EPROTO;
	*out = cbor_get_int(item);
	return 0;
}

static int get_byte(uint8_t *out, const cbor_item_t *item)
{
	uint64_t value;
	int r = get_uint(&value, UINT8_MAX, item);

	if (!r)
		*out = (uint8_t)value;
	return r;
}

static int get_data(struct srdma_connection_info *peer, const cbor_item_t *item)
{
	if (!cbor_isa_bytestring(item) || !cbor_bytestring_is_definite(item) ||
	    cbor_bytestring_length(item) > sizeof(peer->data))
		return -EPROTO;
	peer->data_len = cbor_bytestring_length(item);
	memcpy(peer->data, cbor_bytestring_handle(item), peer->data_len);
	return 0;
}

static int get_protection(struct srdma_protection *p, const cbor_item_t *item)
{
	cbor_item_t **at;

	if (!cbor_isa_array(item) || cbor_array_size(item) != 3)
		return -EPROTO;
	at = cbor_array_handle(item);
	return get_byte(&p->suite, at[0]) || get_byte(&p->level, at[1]) ||
			       get_byte(&p->tag_len, at[2])
		       ? -EPROTO
		       : 0;
}

static int get_bool(int *out, const cbor_item_t *item)
{
	/* cbor_is_bool() must not be asked about a float. */
	if (!cbor_isa_float_ctrl(item) || !cbor_float_ctrl_is_ctrl(item) ||
	    !cbor_is_bool(item))
		return -EPROTO;
	*out = cbor_get_bool(item);
	return 0;
}

static int get_port(uint16_t *out, const cbor_item_t *item)
{
	uint64_t value;
	int r = get_uint(&value, UINT16_MAX, item);

	if (!r)
		*out = (uint16_t)value;
	return r;
}

/* The port of [host, port], where the agent listens. The address of a peer that
 * was refused is a text, and not used. */
static int get_address(uint16_t *out, const cbor_item_t *item)
{
	if (cbor_isa_string(item))
		return 0;
	if (!cbor_isa_array(item) || cbor_array_size(item) != 2)
		return -EPROTO;
	return get_port(out, cbor_array_handle(item)[1]);
}

static int get_gid(uint8_t gid[SRDMA_GID_LEN], const cbor_item_t *item)
{
	if (!cbor_isa_bytestring(item) || !cbor_bytestring_is_definite(item) ||
	    cbor_bytestring_length(item) != SRDMA_GID_LEN)
		return -EPROTO;
	memcpy(gid, cbor_bytestring_handle(item), SRDMA_GID_LEN);
	return 0;
}

/* The fields of `serving` and `called`. */
static int get_talk_field(struct srdma_agent_event *e, const char *name,
			  const cbor_item_t *value)
{
	if (!strcmp(name, "port"))
		return get_port(&e->port, value);
	if (!strcmp(name, "gid"))
		return get_gid(e->gid, value);
	if (!strcmp(name, "talk")) {
		e->has_talk = 1;
		return get_uint(&e->talk, UINT64_MAX, value);
	}
	return 0; /* a field that this library does not use */
}

static int get_field(struct srdma_agent_event *e, const char *name,
		     const cbor_item_t *value)
{
	if (!strcmp(name, "event"))
		return get_text(e->event, sizeof(e->event), value);
	if (!strcmp(name, "code"))
		return get_text(e->code, sizeof(e->code), value);
	if (!strcmp(name, "text"))
		return get_text(e->text, sizeof(e->text), value);
	if (!strcmp(name, "arrival")) {
		e->has_arrival = 1;
		return get_uint(&e->arrival, UINT64_MAX, value);
	}
	if (!strcmp(name, "wish"))
		return get_uint(&e->wish, UINT64_MAX, value);
	if (!strcmp(name, "address"))
		return get_address(&e->port, value);
	if (!strcmp(name, "remote"))
		return get_bool(&e->remote, value);
	if (!strcmp(name, "lasting"))
		return get_bool(&e->lasting, value);
	if (!strcmp(name, "identity"))
		return get_whole_text(e->peer.identity,
				      sizeof(e->peer.identity), value);
	if (!strcmp(name, "data"))
		return get_data(&e->peer, value);
	if (!strcmp(name, "suite"))
		return get_protection(&e->peer.protection, value);
	if (!strcmp(name, "mode"))
		return get_byte(&e->peer.mode, value);
	return get_talk_field(e, name, value);
}

static int get_fields(struct srdma_agent_event *e, const cbor_item_t *map)
{
	const struct cbor_pair *pair;
	size_t n;

	if (!cbor_isa_map(map))
		return -EPROTO;
	pair = cbor_map_handle(map);
	n = cbor_map_size(map);
	for (size_t i = 0; i < n; i++) {
		char name[16];

		if (get_text(name, sizeof(name), pair[i].key) ||
		    get_field(e, name, pair[i].value))
			return -EPROTO;
	}
	return *e->event ? 0 : -EPROTO;
}

/* --- sizes before memory --------------------------------------------------- */

/* Arrays and maps of an event and of what is in it. */
enum { CONTAINERS = 1024 };

struct sizes {
	size_t left;	     /* bytes of the message */
	unsigned containers; /* so far, which limits their depth as well */
	int bad;
};

/* Each item of a container has a byte at least. */
static void judge_container(void *ctx, size_t items)
{
	struct sizes *s = ctx;

	s->bad |= items > s->left || ++s->containers > CONTAINERS;
}

static void judge_endless(void *ctx)
{
	judge_container(ctx, 0);
}

/*
 * cbor_load() allocates what the head of an array or map announces. 0, or
 * -EPROTO: that is more than the message has, or the message is no CBOR.
 */
static int check_sizes(const uint8_t *in, size_t len)
{
	struct cbor_callbacks calls = cbor_empty_callbacks;
	struct sizes s = { .left = len };

	calls.array_start = judge_container;
	calls.map_start = judge_container;
	calls.indef_array_start = judge_endless;
	calls.indef_map_start = judge_endless;
	while (s.left && !s.bad) {
		const struct cbor_decoder_result r = cbor_stream_decode(
			in + len - s.left, s.left, &calls, &s);

		if (r.status != CBOR_DECODER_FINISHED)
			return -EPROTO;
		s.left -= r.read;
	}
	return s.bad ? -EPROTO : 0;
}

int srdma_message_parse(struct srdma_agent_event *e, const uint8_t *in,
			size_t len)
{
	struct cbor_load_result result;
	cbor_item_t *item;
	int r = -EPROTO;

	memset(e, 0, sizeof(*e));
	if (check_sizes(in, len))
		return r;
	item = cbor_load(in, len, &result);
	if (!item)
		return r;
	if (result.read == len)
		r = get_fields(e, item);
	cbor_decref(&item);
	return r;
}
