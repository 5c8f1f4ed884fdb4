/*
 * Control messages of arbitrary bytes: the decoder stays in bounds, and an
 * accepted message encodes to the same bytes.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "relay/ctl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void check_side(enum srdma_ctl_side side, const uint8_t *data,
		       size_t len)
{
	uint8_t out[SRDMA_CTL_MAX];
	struct srdma_ctl_msg m;

	if (srdma_ctl_decode(&m, side, data, len) < 0)
		return;
	if (srdma_ctl_encode(out, side, &m) != (int)len)
		abort();
	if (memcmp(out, data, len) != 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	check_side(SRDMA_CTL_REQUEST, data, len);
	check_side(SRDMA_CTL_ANSWER, data, len);
	return 0;
}
