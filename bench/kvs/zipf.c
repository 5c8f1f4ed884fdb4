#include "zipf.h"

#include <errno.h>
#include <math.h>

#include "mix.h"

uint64_t kvs_dice(uint64_t *state)
{
	*state += 0x9e3779b97f4a7c15;
	return kvs_scramble(*state);
}

uint64_t kvs_dice_below(uint64_t *state, uint64_t n)
{
	return (uint64_t)((unsigned __int128)kvs_dice(state) * n >> 64);
}

/* Uniform in [0, 1). */
static double fraction(uint64_t *state)
{
	return (double)(kvs_dice(state) >> 11) * 0x1p-53;
}

int kvs_zipf_init(struct kvs_zipf *zipf, uint64_t n, double theta)
{
	double two;

	if (!n || !(theta >= 0) || !(theta < 1))
		return -EINVAL;
	*zipf = (struct kvs_zipf){ .n = n, .theta = theta };
	if (theta == 0)
		return 0;
	for (uint64_t i = 1; i <= n; i++)
		zipf->zeta += pow((double)i, -theta);
	two = 1 + pow(2, -theta);
	zipf->second = two;
	zipf->alpha = 1 / (1 - theta);
	/* For n <= 2, draw() does not use eta. */
	if (n > 2)
		zipf->eta = (1 - pow(2 / (double)n, 1 - theta)) /
			    (1 - two / zipf->zeta);
	return 0;
}

uint64_t kvs_zipf_draw(const struct kvs_zipf *zipf, uint64_t *dice)
{
	double u, uz;
	uint64_t rank;

	if (zipf->theta == 0)
		return kvs_dice_below(dice, zipf->n);
	u = fraction(dice);
	uz = u * zipf->zeta;
	if (uz < 1 || zipf->n == 1)
		return 0;
	if (uz < zipf->second || zipf->n == 2)
		return 1;
	rank = (uint64_t)((double)zipf->n *
			  pow(zipf->eta * u - zipf->eta + 1, zipf->alpha));
	return rank < zipf->n ? rank : zipf->n - 1;
}
