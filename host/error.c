#include "host/error.h"

#include <stdarg.h>
#include <stdio.h>

#include "srdma/device.h"
#include "wire/reason.h"

enum { TEXT = 512 };

static _Thread_local char text[TEXT];

int srdma_error_set(int rc, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return rc;
}

const char *srdma_error_text(void)
{
	return text;
}

const char *srdma_reason_name(uint32_t reason)
{
	const char *name = srdma_reason(reason)->name;

	return name ? name : "";
}

const char *srdma_reason_text(uint32_t reason)
{
	const struct srdma_reason_row *row = srdma_reason(reason);

	return row->name ? row->text : "";
}
