/*
 * libsrdma: RDMA whose packets are authenticated and encrypted, for programs in
 * C and C++ (docs/c-library.md, libsrdma(7)).
 *
 *     srdma_open_device -> srdma_alloc_pd -> srdma_alloc_mr, srdma_create_qp
 *     -> srdma_connect, or srdma_listen -> srdma_get_request -> srdma_accept
 *     -> srdma_post_send, srdma_post_recv, srdma_poll_cq
 */
#ifndef SRDMA_PUBLIC_SRDMA_H
#define SRDMA_PUBLIC_SRDMA_H

#include "srdma/connection.h"
#include "srdma/device.h"
#include "srdma/memory.h"
#include "srdma/queue.h"
#include "srdma/reason.h"
#include "srdma/types.h"

#endif
