/*
 * Attempts to connect again to a process that ended: the first one after 50 ms,
 * then with doubling pauses of at most 1 s. One descriptor tells when to look,
 * and stays the same: a caller may have it in an epoll instance of its own,
 * which would lose a descriptor that is replaced by dup2().
 */
#ifndef SRDMA_HOST_RETRY_H
#define SRDMA_HOST_RETRY_H

#include <stdint.h>

struct srdma_retry {
	/* Readable when one of the watched descriptors is, or when the time of
	 * the timer has come. */
	int epoll;
	int timer;     /* -1: no attempts are under way */
	int64_t since; /* when the first of them was planned, ms */
	int64_t pause; /* ms */
};

/* Functions that return an int: 0, or -errno with an error text (error.h). */
int srdma_retry_open(struct srdma_retry *r);
void srdma_retry_close(struct srdma_retry *r);

int srdma_retry_watch(const struct srdma_retry *r, int fd);
/* To be called before close(), which is not enough: a child of fork() may have
 * the file too. */
void srdma_retry_unwatch(const struct srdma_retry *r, int fd);

/* Plans the first attempt. */
int srdma_retry_begin(struct srdma_retry *r);
/* Plans the next one. */
void srdma_retry_again(struct srdma_retry *r);
/* No further attempt is needed. */
void srdma_retry_end(struct srdma_retry *r);

int srdma_retry_under_way(const struct srdma_retry *r);
/* 1 if the attempts have lasted so many seconds. */
int srdma_retry_lasts(const struct srdma_retry *r, int64_t seconds);

/* Sets the timer: ms from now; negative: never. */
void srdma_retry_alarm(const struct srdma_retry *r, int64_t ms);
/* Waits for the timer. As srdma_socket_wait(), without an error text. */
int srdma_retry_wait(const struct srdma_retry *r, int64_t deadline);

#endif
