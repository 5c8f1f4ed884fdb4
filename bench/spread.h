/* Median and quartiles of repeated measurements. */
#ifndef BENCH_SPREAD_H
#define BENCH_SPREAD_H

#include <stdlib.h>

struct spread {
	double low, median, high; /* low and high: first and third quartile */
};

static inline int spread_compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The spread of n >= 1 values. Sorts them. */
static inline struct spread spread_of(double *values, size_t n)
{
	qsort(values, n, sizeof(*values), spread_compare);
	return (struct spread){ values[n / 4], values[n / 2],
				values[n * 3 / 4] };
}

#endif
