#include "control/protocol.h"

#include <errno.h>
#include <string.h>

#include "control/fields.h"

#define TIME_MAX   (UINT64_C(1) << 40)
#define NUMBER_MAX UINT32_MAX /* of a stream that cannot be opened */
#define UID_MAX	   (UINT32_MAX - 1)
/* of the name of a container */
#define NAME_CHARACTERS                                                        \
	"ABCDEFGHIJKLMNOPQRSTUVWXYZ"                                           \
	"abcdefghijklmnopqrstuvwxyz"                                           \
	"0123456789._-"

enum { CONTAINER_MAX = 16 }; /* bytes */

static int illegal(struct reason *r, const struct frame *f)
{
	return reason_set(r, "state", "a frame of type %u is not legal here",
			  f->type);
}

static int check_map(struct reason *r, const struct frame *f)
{
	if (!fields_check(f->body, f->len))
		return 0;
	return reason_set(r, "format",
			  "a message is not exactly one deterministic CBOR map "
			  "(RFC 8949 4.2)");
}

static int find(struct field *out, const struct frame *f, const char *key,
		struct reason *r)
{
	static const char *const names[] = { "HELLO", "", "OPEN" };

	if (fields_find(out, f->body, f->len, key))
		return 0;
	return reason_set(r, "format", "%s lacks '%s'", names[f->type], key);
}

/* Control characters are replaced, because the name is for a log. */
static int take_name(struct protocol *p, const struct field *name,
		     struct reason *r)
{
	if (name->type != FIELD_TEXT || name->len > PROTOCOL_NAME_MAX)
		return reason_set(r, "value",
				  "name is not a text of at most %d bytes",
				  PROTOCOL_NAME_MAX);
	memcpy(p->name, name->text, name->len);
	p->name[name->len] = '\0';
	for (size_t i = 0; i < name->len; i++)
		if ((unsigned char)p->name[i] < 0x20 || p->name[i] == 0x7f)
			p->name[i] = '?';
	return 0;
}

static int take_hello(struct protocol *p, const struct frame *f,
		      struct reason *r)
{
	struct field name, time;

	if (check_map(r, f) || find(&name, f, "name", r) ||
	    find(&time, f, "time", r) || take_name(p, &name, r))
		return -EPROTO;
	if (time.type != FIELD_UINT || time.number > TIME_MAX)
		return reason_set(r, "value",
				  "time is not a number of seconds "
				  "since 1970");
	p->time = (int64_t)time.number;
	if (p->greeted)
		return PROTOCOL_NOTHING;
	p->greeted = 1;
	return PROTOCOL_GREETED;
}

static int take_refused(const struct frame *f, struct reason *r)
{
	if (reason_decode(r, f->body, f->len))
		return -EPROTO;
	if (!f->len)
		reason_set(r, "state", "no reason");
	return PROTOCOL_REFUSED;
}

/* OPENED, DATA or END. A stream that has ended ignores what was under way. */
static int take_of_stream(const struct frame *f, int live, struct reason *r)
{
	if (!live)
		return PROTOCOL_NOTHING;
	if (f->type == FRAME_DATA && f->len)
		return PROTOCOL_DATA;
	if (f->type == FRAME_END)
		return reason_decode(r, f->body, f->len) ? -EPROTO
							 : PROTOCOL_END;
	return illegal(r, f);
}

static int take_on_zero(struct protocol *p, const struct frame *f,
			struct reason *r)
{
	if (f->type == FRAME_HELLO)
		return take_hello(p, f, r);
	if (f->type == FRAME_HEARTBEAT && !f->len)
		return PROTOCOL_NOTHING;
	if (f->type == FRAME_REFUSED)
		return take_refused(f, r);
	return illegal(r, f);
}

int protocol_take(struct protocol *p, const struct frame *f, int live,
		  struct reason *r)
{
	if (!p->greeted &&
	    (f->stream || (f->type != FRAME_HELLO && f->type != FRAME_REFUSED)))
		return reason_set(r, "state", "the first frame must be HELLO");
	if (!f->stream)
		return take_on_zero(p, f, r);
	if (f->type == FRAME_OPEN && f->stream == p->next &&
	    p->next < NUMBER_MAX) {
		p->next++;
		return PROTOCOL_OPEN;
	}
	if (f->type >= FRAME_OPENED && f->type <= FRAME_END &&
	    f->stream < p->next)
		return take_of_stream(f, live, r);
	return illegal(r, f);
}

static int is_text(const struct field *f, const char *text)
{
	return f->type == FIELD_TEXT && f->len == strlen(text) &&
	       memcmp(f->text, text, f->len) == 0;
}

static int is_name(const struct field *f)
{
	if (f->type != FIELD_TEXT || !f->len || f->len > CONTAINER_MAX)
		return 0;
	for (size_t i = 0; i < f->len; i++)
		if (!memchr(NAME_CHARACTERS, f->text[i],
			    sizeof(NAME_CHARACTERS) - 1))
			return 0;
	return 1;
}

/* The uid or the container of a program on its host. */
static int check_user(const struct frame *f, struct reason *r)
{
	struct field uid, container;
	const int in_one =
		fields_find(&container, f->body, f->len, "container");

	if (in_one && !is_name(&container))
		return reason_set(r, "value",
				  "OPEN has a container whose name is not "
				  "legal");
	if (in_one && fields_find(&uid, f->body, f->len, "uid"))
		return reason_set(r, "value", "OPEN has a uid and a container");
	if (in_one)
		return 0;
	if (find(&uid, f, "uid", r))
		return -EPROTO;
	if (uid.type != FIELD_UINT || uid.number > UID_MAX)
		return reason_set(r, "value", "uid is not 0 to %u", UID_MAX);
	return 0;
}

int protocol_open(struct protocol_open *o, const struct frame *f,
		  struct reason *r)
{
	struct field to, path = { 0 };

	if (check_map(r, f) || check_user(f, r) || find(&to, f, "to", r))
		return -EPROTO;
	*o = (struct protocol_open){ .to_worker = is_text(&to, "worker") };
	if (o->to_worker && fields_find(&path, f->body, f->len, "path") &&
	    path.type == FIELD_TEXT) {
		o->path = (const char *)path.text;
		o->path_len = path.len;
	} else if (!is_text(&to, "agent")) {
		return reason_set(r, "value",
				  "OPEN is to `agent`, or to `worker` with a "
				  "path");
	}
	return 0;
}
