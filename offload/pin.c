#include "pin.h"

#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"

/*
 * Parse the number at *at and advance *at. Returns CPU_SETSIZE if there is no
 * valid number.
 */
static unsigned core_at(const char **at)
{
	unsigned long core;
	char *end;

	if (!isdigit((unsigned char)**at))
		return CPU_SETSIZE;
	core = strtoul(*at, &end, 10);
	*at = end;
	return core < CPU_SETSIZE ? (unsigned)core : CPU_SETSIZE;
}

static int add(struct pin *p, cpu_set_t *named, unsigned core)
{
	if (CPU_ISSET(core, named))
		return -EINVAL;
	CPU_SET(core, named);
	p->core[p->cores++] = (uint16_t)core;
	return 0;
}

/* Parse a number, or two numbers separated by '-'. */
static int range(struct pin *p, cpu_set_t *named, const char **at)
{
	unsigned first = core_at(at), last = first;
	int rc = 0;

	if (**at == '-') {
		++*at;
		last = core_at(at);
	}
	if (first == CPU_SETSIZE || last == CPU_SETSIZE || last < first)
		return -EINVAL;
	for (unsigned core = first; rc == 0 && core <= last; core++)
		rc = add(p, named, core);
	return rc;
}

int pin_parse(struct pin *p, const char *text)
{
	cpu_set_t named;
	int rc;

	CPU_ZERO(&named);
	p->cores = 0;
	do {
		rc = range(p, &named, &text);
	} while (rc == 0 && *text++ == ',');
	return rc < 0 || text[-1] ? -EINVAL : 0;
}

int pin_thread(unsigned core)
{
	cpu_set_t set;
	int err;

	CPU_ZERO(&set);
	CPU_SET(core, &set);
	if (sched_setaffinity(0, sizeof(set), &set) == 0)
		return 0;
	err = errno;
	log_error("--pin: core %u: %s", core,
		  err == EINVAL ? "this machine has no such core, or this "
				  "process may not use it: see "
				  "Cpus_allowed_list in "
				  "/proc/self/status"
				: strerror(err));
	return -err;
}
