/*
 * Frames of the control link of arbitrary bytes, from their beginning on: the
 * parsers stay in bounds.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "control/protocol.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void check_text(const char *text, size_t most)
{
	if (strlen(text) >= most)
		abort();
}

static void take(struct protocol *p, const struct frame *f)
{
	struct protocol_open o;
	struct reason r = { .code = "" };

	switch (protocol_take(p, f, f->stream % 2, &r)) {
	case PROTOCOL_OPEN:
		if (protocol_open(&o, f, &r) == 0 && o.to_worker &&
		    (const uint8_t *)o.path + o.path_len > f->body + f->len)
			abort();
		break;
	case PROTOCOL_GREETED:
		check_text(p->name, sizeof(p->name));
		break;
	}
	check_text(r.code, sizeof(r.code));
	check_text(r.text, sizeof(r.text));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct protocol p = { .next = 1 };
	struct frame f;
	int n;

	for (size_t at = 0; (n = frame_parse(&f, data + at, len - at)) > 0;
	     at += (size_t)n)
		take(&p, &f);
	return 0;
}
