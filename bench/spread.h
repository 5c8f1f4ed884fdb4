/* What is said of values that were measured again and again. */
#ifndef BENCH_SPREAD_H
#define BENCH_SPREAD_H

#include <stdlib.h>

struct spread {
	double low, median, high; /* first and third quartile beside it */
};

static inline int spread_compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Of n values, one at least, which it sorts. */
static inline struct spread spread_of(double *values, size_t n)
{
	qsort(values, n, sizeof(*values), spread_compare);
	return (struct spread){ values[n / 4], values[n / 2],
				values[n * 3 / 4] };
}

#endif
