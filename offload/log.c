#include "log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINE_LEN = 1024 };

static enum log_level threshold = LEVEL_INFO;
static const char *program = "srdma-offload";
static char name[sizeof("worker process 4294967295: ")];

void log_set_level(enum log_level level)
{
	threshold = level;
}

void log_name_program(const char *its_name)
{
	program = its_name;
}

void log_name_worker(unsigned index)
{
	snprintf(name, sizeof(name), "worker process %u: ", index);
}

/* 1: a control character of ASCII, or the first byte of one of C1 in UTF-8. c ends
 * with a zero byte. */
static int is_control(const unsigned char *c)
{
	return *c < 0x20 || *c == 0x7f ||
	       (*c == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0);
}

/*
 * Write a line by one write(), so that lines of several workers or worker
 * processes do not mix. level NULL: write only the text.
 */
static void put(const char *level, const char *format, va_list args)
{
	char line[LINE_LEN + 1];
	int n = level ? snprintf(line, LINE_LEN, "%s: %s%s", program, name,
				 level)
		      : 0;
	size_t len;

	vsnprintf(line + n, (size_t)(LINE_LEN - n), format, args);
	len = strlen(line);
	for (size_t i = 0; i < len; i++)
		if (is_control((const unsigned char *)line + i))
			line[i] = '?';
	line[len++] = '\n';
	if (write(STDERR_FILENO, line, len) < 0)
		return; /* a failure cannot be reported */
}

#define PUT(LEVEL)                                                             \
	do {                                                                   \
		va_list args;                                                  \
		va_start(args, format);                                        \
		put(LEVEL, format, args);                                      \
		va_end(args);                                                  \
	} while (0)

void log_error(const char *format, ...)
{
	PUT("error: ");
}

void log_info(const char *format, ...)
{
	if (threshold >= LEVEL_INFO)
		PUT("");
}

void log_debug(const char *format, ...)
{
	if (threshold >= LEVEL_DEBUG)
		PUT("debug: ");
}

void log_line(const char *format, ...)
{
	PUT(NULL);
}
