#include "base/fifo.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void srdma_fifo_init(struct srdma_fifo *f)
{
	f->first = NULL;
	f->last = &f->first;
	f->count = 0;
}

void srdma_fifo_clear(struct srdma_fifo *f)
{
	while (f->first)
		free(srdma_fifo_pop(f));
}

int srdma_fifo_copy(struct srdma_fifo *f, const uint8_t *data, uint32_t len)
{
	struct srdma_datagram *d = malloc(sizeof(*d) + len);

	if (!d)
		return -ENOMEM;
	d->due = 0;
	d->len = len;
	memcpy(d->data, data, len);
	srdma_fifo_push(f, d);
	return 0;
}

void srdma_fifo_push(struct srdma_fifo *f, struct srdma_datagram *d)
{
	d->next = NULL;
	*f->last = d;
	f->last = &d->next;
	f->count++;
}

struct srdma_datagram *srdma_fifo_pop(struct srdma_fifo *f)
{
	struct srdma_datagram *d = f->first;

	if (!d)
		return NULL;
	f->first = d->next;
	if (!f->first)
		f->last = &f->first;
	f->count--;
	return d;
}

void srdma_fifo_move(struct srdma_fifo *to, struct srdma_fifo *from)
{
	while (from->first)
		srdma_fifo_push(to, srdma_fifo_pop(from));
}

uint32_t srdma_fifo_take(struct srdma_fifo *f, uint8_t *out)
{
	struct srdma_datagram *d = srdma_fifo_pop(f);
	uint32_t len = d->len;

	memcpy(out, d->data, len);
	free(d);
	return len;
}
