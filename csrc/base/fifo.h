/* Queues of datagrams of the ports in memory. Nobody else needs them. */
#ifndef SRDMA_FIFO_H
#define SRDMA_FIFO_H

#include <stdint.h>

struct srdma_datagram {
	struct srdma_datagram *next;
	uint64_t due; /* not before this time; 0: at once */
	uint32_t len;
	uint8_t data[];
};

struct srdma_fifo {
	struct srdma_datagram *first, **last;
	uint32_t count;
};

void srdma_fifo_init(struct srdma_fifo *f);
void srdma_fifo_clear(struct srdma_fifo *f);

/* Append a copy. 0 or -ENOMEM. */
int srdma_fifo_copy(struct srdma_fifo *f, const uint8_t *data, uint32_t len);

/* Append d, which is f's from now on. */
void srdma_fifo_push(struct srdma_fifo *f, struct srdma_datagram *d);

/* The oldest one, the caller's to free; NULL: none. */
struct srdma_datagram *srdma_fifo_pop(struct srdma_fifo *f);

/* Append all of from, which is empty then. */
void srdma_fifo_move(struct srdma_fifo *to, struct srdma_fifo *from);

/* Pop the oldest one into out, which has room for it. Returns its length. */
uint32_t srdma_fifo_take(struct srdma_fifo *f, uint8_t *out);

#endif
