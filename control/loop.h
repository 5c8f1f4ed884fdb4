/*
 * Waits for events of file descriptors. Each wait processes one event, so that
 * its callback may close any other descriptor.
 */
#ifndef CONTROL_LOOP_H
#define CONTROL_LOOP_H

#include <stdint.h>

/* Part of the structure that owns the descriptor. */
struct watch {
	int fd;
	uint32_t events; /* epoll(7) */
	void (*run)(struct watch *w, uint32_t events);
};

struct loop {
	int epoll;
};

/* 0 or -errno. */
int loop_open(struct loop *l);
void loop_close(struct loop *l);

/* Watches w->fd for w->events. 0 or -errno. */
int loop_add(struct loop *l, struct watch *w);
void loop_set(struct loop *l, struct watch *w, uint32_t events);
void loop_remove(struct loop *l, struct watch *w);

/* Monotonic time, ns. */
uint64_t loop_now(void);

/* Waits for an event until the time `until`, and runs its callback. Descriptors
 * that are ready take turns. */
void loop_wait(struct loop *l, uint64_t until);

#endif
