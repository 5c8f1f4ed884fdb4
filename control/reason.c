#include "control/reason.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "control/fields.h"

/* Cuts a text that snprintf() may have cut inside a character. */
static void cut_character(char *text)
{
	size_t len = strlen(text);

	for (int i = 0; i < 4 && len && !srdma_utf8_check(text, len); i++)
		text[--len] = '\0';
}

int reason_set(struct reason *r, const char *code, const char *format, ...)
{
	va_list args;

	snprintf(r->code, sizeof(r->code), "%s", code);
	va_start(args, format);
	vsnprintf(r->text, sizeof(r->text), format, args);
	va_end(args);
	cut_character(r->text);
	return -EPROTO;
}

int reason_put(struct queue *q, uint32_t stream, enum frame_type type,
	       const struct reason *r)
{
	struct srdma_message w = { 0 };

	srdma_message_map(&w, 2);
	srdma_message_text(&w, "code");
	srdma_message_text(&w, r->code);
	srdma_message_text(&w, "text");
	srdma_message_text(&w, r->text);
	return frame_put_map(q, stream, type, &w);
}

int reason_decode(struct reason *r, const uint8_t *body, size_t len)
{
	struct field code, text;

	*r = (struct reason){ .code = "" };
	if (!len)
		return 0;
	if (fields_check(body, len))
		return reason_set(r, "format",
				  "a reason is not exactly one deterministic "
				  "CBOR map (RFC 8949 4.2)");
	if (!fields_find(&code, body, len, "code") || code.type != FIELD_TEXT ||
	    !fields_find(&text, body, len, "text") || text.type != FIELD_TEXT)
		return reason_set(r, "format",
				  "a reason has no code or no text");
	snprintf(r->code, sizeof(r->code), "%.*s", (int)code.len,
		 (const char *)code.text);
	snprintf(r->text, sizeof(r->text), "%.*s", (int)text.len,
		 (const char *)text.text);
	return 0;
}
