/*
 * Work requests of a host before they are posted (docs/local-interface.md 2.1).
 */
#ifndef SRDMA_HOST_WORK_H
#define SRDMA_HOST_WORK_H

#include "wire/wire.h"

/* Bytes that follow the descriptor: inline data or an SGL, at `behind`. NULL:
 * none. */
uint32_t srdma_work_behind(const struct srdma_desc *wr, const void *behind);

/* 0, or as srdma_host_post(): -EINVAL, -EMSGSIZE. */
int srdma_work_check(const struct srdma_desc *wr, const void *behind);

#endif
