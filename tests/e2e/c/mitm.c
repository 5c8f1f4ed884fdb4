/*
 * A program on the wire between two workers, which injects faults.
 *
 *     mitm shm LEFT_DIR RIGHT_DIR LEFT_NAME RIGHT_NAME
 *     mitm net LEFT_DEVICE RIGHT_DEVICE
 *     mitm vms LEFT_PORT LEFT_PEER RIGHT_PORT RIGHT_PEER
 *
 * Reads one command per line and prints one line in response to each:
 *
 *     faults SEED FLIP DROP TWICE REPLACE LATE   rates per 10,000 packets
 *     swallow SIDES   drops all packets of 1 left, 2 right, 3 both, 0 none
 *     cut             closes every connection; prints how many there were
 *     count           prints packets, hits of each fault, swallowed packets
 *
 * It exits at the end of its input.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "meddle.h"

enum { LINE = 256, HELD_MS = 5, ROUNDS = 64, COMMANDS = SIDES };

_Noreturn void die(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	fputs("mitm: ", stderr);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

/* --- commands ------------------------------------------------------------- */

static void set_faults(struct meddle *m, const char *words)
{
	uint32_t *r = m->rates;

	if (sscanf(words,
		   "%" SCNu64 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32
		   " %" SCNu32,
		   &m->random, &r[MEDDLE_FLIP], &r[MEDDLE_DROP],
		   &r[MEDDLE_TWICE], &r[MEDDLE_REPLACE],
		   &r[MEDDLE_LATE]) != 1 + MEDDLE_FAULTS ||
	    !m->random)
		die("faults %s: give a seed that is not 0, and five rates",
		    words);
	puts("ok");
}

static void set_swallow(struct meddle *m, const char *words)
{
	if (sscanf(words, "%" SCNu32, &m->swallow) != 1)
		die("swallow %s: give a number", words);
	puts("ok");
}

static void tell_count(const struct meddle *m)
{
	printf("%" PRIu64, m->packets);
	for (int i = 0; i < MEDDLE_FAULTS; i++)
		printf(" %" PRIu64, m->hits[i]);
	printf(" %" PRIu64 "\n", m->swallowed);
}

/*
 * Executes a command. Returns 0 at the end of the input. Each line arrives as a
 * whole, because it comes from a pipe.
 */
static int obey(struct meddle *m)
{
	char line[LINE];
	ssize_t n = read(STDIN_FILENO, line, sizeof(line) - 1);

	if (n <= 0)
		return 0;
	line[n] = 0;
	if (!strncmp(line, "faults ", 7))
		set_faults(m, line + 7);
	else if (!strncmp(line, "swallow ", 8))
		set_swallow(m, line + 8);
	else if (!strcmp(line, "cut\n"))
		printf("%d\n",
		       m->cable->ops->cut ? m->cable->ops->cut(m->cable) : 0);
	else if (!strcmp(line, "count\n"))
		tell_count(m);
	else
		die("%s: give faults, swallow, cut or count", line);
	fflush(stdout);
	return 1;
}

/* --- main loop ------------------------------------------------------------ */

static int has_held(const struct meddle *m)
{
	for (int side = LEFT; side < SIDES; side++)
		for (int i = 0; i < MEDDLE_HELD; i++)
			if (m->held[side][i].wait)
				return 1;
	return 0;
}

/* Sleeps if there is no work. Returns 0 at the end. */
static int look_up(struct meddle *m, int busy)
{
	struct cable *c = m->cable;
	struct pollfd fds[] = {
		[LEFT] = { .fd = c->fds[LEFT], .events = POLLIN },
		[RIGHT] = { .fd = c->fds[RIGHT], .events = POLLIN },
		[COMMANDS] = { .fd = STDIN_FILENO, .events = POLLIN },
	};
	int ms = busy || c->ops->arm(c) ? 0 : has_held(m) ? HELD_MS : -1;
	int ready = poll(fds, sizeof(fds) / sizeof(*fds), ms);

	c->ops->disarm(c);
	if (!ready && ms)
		meddle_release(m);
	return ready <= 0 || !fds[COMMANDS].revents || obey(m);
}

/* Returns 0 if no frame arrived. */
static int pass(struct meddle *m)
{
	int rounds = ROUNDS;

	while (rounds && m->cable->ops->take(m->cable, meddle_pass, m)) {
		m->cable->ops->flush(m->cable);
		rounds--;
	}
	return rounds < ROUNDS;
}

static struct cable *make_cable(int argc, const char *const argv[])
{
	if (argc == 6 && !strcmp(argv[1], "shm"))
		return cable_shm_create(argv + 2, argv + 4);
	if (argc == 4 && !strcmp(argv[1], "net"))
		return cable_net_create(argv + 2);
	if (argc == 6 && !strcmp(argv[1], "vms"))
		return cable_vms_create((const void *)(argv + 2));
	die("give shm LEFT_DIR RIGHT_DIR LEFT_NAME RIGHT_NAME, "
	    "net LEFT_DEVICE RIGHT_DEVICE, or "
	    "vms LEFT_PORT LEFT_PEER RIGHT_PORT RIGHT_PEER");
}

int main(int argc, char *argv[])
{
	static struct meddle m = { .random = 1 };
	struct cable *c = make_cable(argc, (const char *const *)argv);

	m.cable = c;
	puts("up");
	fflush(stdout);
	while (look_up(&m, pass(&m)))
		c->ops->flush(c);
	c->ops->destroy(c);
	return 0;
}
