#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/time.h"
#include "log.h"

enum { TURN_TRIES = 1000, TURN_WAIT_NS = 100000 };

struct report_out {
	int fd;
	int turn; /* memfd used as a lock; the kernel releases the lock of a
		     process that ends */
	char line[REPORT_MAX];
	size_t at, len;
};

static void append(char *out, size_t *len, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* *len may exceed REPORT_MAX if the text does not fit. */
static void append(char *out, size_t *len, const char *format, ...)
{
	size_t at = *len < REPORT_MAX ? *len : REPORT_MAX;
	va_list args;

	va_start(args, format);
	*len += (size_t)vsnprintf(out + at, REPORT_MAX - at, format, args);
	va_end(args);
}

int report_format(char out[REPORT_MAX], const struct report *r)
{
	const uint64_t *counters = (const uint64_t *)r->stats;
	size_t len = 0;

	append(out, &len,
	       "{\"name\":\"%s\",\"uptime\":%" PRIu64 ".%03u,"
	       "\"qps\":%u",
	       r->name, r->uptime_ns / SRDMA_SECOND,
	       (unsigned)(r->uptime_ns / 1000000 % 1000), r->qps);
	for (unsigned i = 0; i < srdma_stats_count(); i++)
		if (srdma_stats_name(i))
			append(out, &len, ",\"%s\":%" PRIu64,
			       srdma_stats_name(i), counters[i]);
	append(out, &len, "}\n");
	return len < REPORT_MAX ? (int)len : -EMSGSIZE;
}

/*
 * A write to a terminal may be partial and may block. A new open file
 * description is non-blocking without changing that of other processes.
 */
static int own_terminal(void)
{
	int fd = isatty(STDOUT_FILENO)
			 ? open("/proc/self/fd/1",
				O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
			 : -1;

	return fd < 0 ? STDOUT_FILENO : fd;
}

struct report_out *report_out_create(void)
{
	struct report_out *out =
		mmap(NULL, sizeof(*out), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (out == MAP_FAILED)
		return NULL;
	out->fd = own_terminal();
	out->turn = memfd_create("srdma-report", MFD_CLOEXEC);
	if (out->turn >= 0)
		return out;
	report_out_destroy(out);
	return NULL;
}

void report_out_destroy(struct report_out *out)
{
	if (!out)
		return;
	if (out->turn >= 0)
		close(out->turn);
	if (out->fd != STDOUT_FILENO)
		close(out->fd);
	munmap(out, sizeof(*out));
}

/* A writable pipe accepts PIPE_BUF bytes without blocking (pipe(7)). */
static void hand_over(struct report_out *out)
{
	struct pollfd to = { .fd = out->fd, .events = POLLOUT };

	while (out->at < out->len && poll(&to, 1, 0) == 1 &&
	       to.revents & POLLOUT) {
		size_t left = out->len - out->at;
		ssize_t n = write(out->fd, out->line + out->at,
				  left < PIPE_BUF ? left : PIPE_BUF);

		if (n < 0)
			return;
		out->at += (size_t)n;
	}
}

/* Returns 0 if the line was dropped. */
static int print(const struct report *r, struct report_out *out)
{
	int len;

	hand_over(out);
	if (out->at < out->len)
		return 0;
	len = report_format(out->line, r);
	out->at = 0;
	out->len = len < 0 ? 0 : (size_t)len;
	hand_over(out);
	if (out->at)
		return 1;
	out->len = 0;
	return 0;
}

/*
 * type: F_WRLCK to lock, F_UNLCK to unlock. Returns 0, or -1 if another process
 * holds the lock.
 */
static int turn(const struct report_out *out, short type)
{
	struct flock whole = { .l_type = type, .l_whence = SEEK_SET };

	return fcntl(out->turn, F_SETLK, &whole);
}

/* The wait is bounded because the process that holds the lock may hang. */
static int take_turn(const struct report_out *out)
{
	const struct timespec wait = { .tv_nsec = TURN_WAIT_NS };

	for (int i = 0; i < TURN_TRIES; i++) {
		if (turn(out, F_WRLCK) == 0)
			return 1;
		nanosleep(&wait, NULL);
	}
	return 0;
}

void report_print(const struct report *r, struct report_out *out)
{
	int printed = 0;

	if (take_turn(out)) {
		printed = print(r, out);
		turn(out, F_UNLCK);
	}
	if (!printed)
		log_debug(
			"a line of statistics was dropped: the reader of stdout "
			"is too slow or gone");
}
