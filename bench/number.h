/* Numbers of a command line. */
#ifndef BENCH_NUMBER_H
#define BENCH_NUMBER_H

#include <stdint.h>
#include <stdlib.h>

/* All of the text, in decimal. 1; 0: it is no number, or not one of these. */
static inline int number_read(const char *text, long least, long most,
			      long *out)
{
	char *end;

	*out = strtol(text, &end, 10);
	return end != text && !*end && *out >= least && *out <= most;
}

/* Seconds, an hour at most, to nanoseconds. 1 or 0. */
static inline int seconds_read(const char *text, uint64_t *ns)
{
	char *end;
	const double s = strtod(text, &end);

	if (end == text || *end || !(s >= 0 && s <= 3600))
		return 0;
	*ns = (uint64_t)(s * 1e9);
	return 1;
}

#endif
