#include "control/queue.h"

#include <stdlib.h>

#include "base/bytes.h"

uint8_t *queue_add(struct queue *q, size_t len)
{
	struct chunk *c = malloc(sizeof(*c) + len);

	if (!c)
		return NULL;
	c->next = NULL;
	c->len = len;
	c->done = 0;
	if (q->last)
		q->last->next = c;
	else
		q->first = c;
	q->last = c;
	q->bytes += sizeof(*c) + len;
	return c->data;
}

void queue_take(struct queue *q, size_t n)
{
	struct chunk *c = q->first;

	c->done += n;
	q->bytes -= n;
	if (c->done < c->len)
		return;
	q->bytes -= sizeof(*c);
	q->first = c->next;
	if (!q->first)
		q->last = NULL;
	srdma_wipe(c->data, c->len);
	free(c);
}

void queue_clear(struct queue *q)
{
	while (q->first)
		queue_take(q, q->first->len - q->first->done);
}
