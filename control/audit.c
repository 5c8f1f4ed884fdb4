#include "control/audit.h"

#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	RATE = 50,	/* lines per second */
	END_LEN = 40,	/* room for the end of a text, a number, and "}\n" */
	LONGEST = 1024, /* bytes of a text */
};

static int64_t second;
static unsigned lines, dropped;

int64_t audit_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void add(struct audit *a, const char *text)
{
	const size_t len = strlen(text);

	memcpy(a->line + a->len, text, len);
	a->len += len;
}

/* 0 if the line has no room for another field. */
static int add_key(struct audit *a, const char *key)
{
	if (a->len + strlen(key) + END_LEN > sizeof(a->line))
		return 0;
	add(a, ", \"");
	add(a, key);
	add(a, "\": ");
	return 1;
}

void audit_begin(struct audit *a, const char *event, int64_t time)
{
	a->len = (size_t)snprintf(a->line, sizeof(a->line),
				  "{\"time\": %" PRId64 ".%03d, \"event\": "
				  "\"%.32s\"",
				  time / 1000, (int)(time % 1000), event);
}

void audit_text(struct audit *a, const char *key, const char *text)
{
	size_t most;

	if (!add_key(a, key))
		return;
	most = sizeof(a->line) - END_LEN;
	if (most > a->len + LONGEST)
		most = a->len + LONGEST;
	a->line[a->len++] = '"';
	for (; *text && a->len < most; text++) {
		if (*text == '"' || *text == '\\')
			a->line[a->len++] = '\\';
		a->line[a->len++] = *text >= 0x20 && *text < 0x7f ? *text : '?';
	}
	a->line[a->len++] = '"';
}

void audit_number(struct audit *a, const char *key, int64_t number)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRId64, number);
	if (add_key(a, key))
		add(a, text);
}

size_t audit_end(struct audit *a)
{
	add(a, "}\n");
	return a->len;
}

/* A pipe that is writable has room for PIPE_BUF bytes. */
static int is_writable(void)
{
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };

	return poll(&p, 1, 0) == 1 && p.revents & POLLOUT;
}

static int may_write(int64_t now)
{
	if (now / 1000 != second) {
		second = now / 1000;
		lines = 0;
	}
	return lines < RATE && is_writable();
}

void audit_put(struct audit *a)
{
	struct audit first;

	audit_end(a);
	if (!may_write(audit_now())) {
		dropped++;
		return;
	}
	if (dropped) {
		audit_begin(&first, "dropped", audit_now());
		audit_number(&first, "lines", dropped);
		if (write(STDERR_FILENO, first.line, audit_end(&first)) >= 0)
			dropped = 0;
		if (!is_writable()) {
			dropped++;
			return;
		}
	}
	lines++;
	if (write(STDERR_FILENO, a->line, a->len) < 0)
		dropped++;
}

void audit_write(const char *event, ...)
{
	struct audit a;
	const char *key;
	va_list args;

	audit_begin(&a, event, audit_now());
	va_start(args, event);
	while ((key = va_arg(args, const char *)))
		audit_text(&a, key, va_arg(args, const char *));
	va_end(args);
	audit_put(&a);
}
