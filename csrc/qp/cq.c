#include "qp/cq.h"

#include <errno.h>

#include "qp/env.h"

/* RFC 5042 R6.4.3.2-2, R6.4.6-1, A6.4.3.2b, A6.4.6 */
int srdma_cq_put(struct srdma_cq *cq, struct srdma_record *rec)
{
	struct srdma_env *env = cq->env;
	uint8_t bytes[SRDMA_RECORD_LEN];
	int err;

	if (cq->down)
		return 0;
	if (cq->written - cq->consumed >= cq->ring)
		return -EAGAIN;
	rec->sequence = cq->written + 1;
	srdma_record_encode(bytes, rec);
	err = env->host->ops->complete(cq->conn, cq->written & (cq->ring - 1),
				       bytes);
	if (err == -EAGAIN)
		return err;
	/* Any other error: the leg has ended, which the port reports as an
	 * event. */
	cq->written++;
	env->stats.completions++;
	if (rec->status)
		env->stats.completions_failed++;
	return 0;
}

/* RFC 5042 A7.1b */
void srdma_cq_consume(struct srdma_cq *cq, uint32_t consumed)
{
	if (consumed - cq->consumed <= cq->written - cq->consumed)
		cq->consumed = consumed;
}

/* RFC 5042 R2.2.7-1, A2.2.7 */
void srdma_cq_down(struct srdma_cq *cq)
{
	cq->down = 1;
}
