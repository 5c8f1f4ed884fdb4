/* Parsing of numbers on the command line. */
#ifndef BENCH_NUMBER_H
#define BENCH_NUMBER_H

#include <stdint.h>
#include <stdlib.h>

/*
 * Parse a whole text as a decimal number. Returns 1, or 0 if it is not a number
 * from least to most.
 */
static inline int number_read(const char *text, long least, long most,
			      long *out)
{
	char *end;

	*out = strtol(text, &end, 10);
	return end != text && !*end && *out >= least && *out <= most;
}

/* Parse seconds, 0 to 3600, into nanoseconds. Returns 1 or 0. */
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
