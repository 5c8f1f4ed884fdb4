#include "qp/sgl.h"

struct srdma_sge srdma_sgl_part(const struct srdma_sge *sgl, uint32_t at,
				uint32_t most)
{
	struct srdma_sge part;

	for (; at >= sgl->length; sgl++)
		at -= sgl->length;
	part = *sgl;
	part.addr += at;
	part.length -= at;
	if (part.length > most)
		part.length = most;
	return part;
}
