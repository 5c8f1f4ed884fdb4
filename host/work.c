#include "host/work.h"

#include <errno.h>

uint32_t srdma_work_behind(const struct srdma_desc *wr, const void *behind)
{
	if (!behind)
		return 0;
	return wr->sges ? (uint32_t)wr->sges * SRDMA_SGE_LEN : wr->length;
}

static int check_behind(const struct srdma_desc *wr, const void *behind)
{
	if (wr->sges)
		return behind && wr->sges <= SRDMA_MAX_SGES &&
				       srdma_desc_has_sgl(wr->opcode)
			       ? 0
			       : -EINVAL;
	if (!behind)
		return 0;
	if (srdma_desc_is_answered(wr->opcode) || wr->opcode == SRDMA_DESC_RECV)
		return -EINVAL;
	return wr->length > SRDMA_MAX_INLINE ? -EMSGSIZE : 0;
}

static int atomic_write_ok(const struct srdma_desc *wr)
{
	return wr->length == SRDMA_ATOMIC_LEN &&
	       wr->remote_addr % SRDMA_ATOMIC_LEN == 0;
}

int srdma_work_check(const struct srdma_desc *wr, const void *behind)
{
	if (srdma_desc_wc_opcode(wr->opcode) < 0 ||
	    (wr->flags & ~(SRDMA_DESC_SIGNALED | SRDMA_DESC_FENCE)))
		return -EINVAL;
	if (wr->capability && !srdma_desc_names_memory(wr->opcode))
		return -EINVAL;
	if (wr->length > SRDMA_MAX_MESSAGE)
		return -EMSGSIZE;
	if (srdma_desc_is_atomic(wr->opcode) && !srdma_desc_operands_ok(wr))
		return -EINVAL;
	if (wr->opcode == SRDMA_DESC_ATOMIC_WRITE && !atomic_write_ok(wr))
		return -EINVAL;
	return check_behind(wr, behind);
}
