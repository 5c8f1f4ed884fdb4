/* Connections made without waiting: the steps of srdma_connect() and its
 * siblings (connection.h). */
#ifndef SRDMA_HOST_CONNECTING_H
#define SRDMA_HOST_CONNECTING_H

#include "host/settings.h"
#include "srdma/connection.h"

/*
 * Sends the request to the agent. Errors of srdma_connect(), but for those of
 * the key exchange. The caller ends the connection by srdma_disconnect(); until
 * srdma_connection_advance() returned 1 it may call nothing else, but
 * srdma_connection_fd().
 */
int srdma_connection_begin(struct srdma_connection **connection,
			   struct srdma_pd *pd,
			   const struct srdma_settings_peer *peer,
			   const struct srdma_connection_attr *attr);

/* Reads what the agent has sent; it does not wait. 1: the QPs of both ends can be
 * used; 0: not yet; -errno, as srdma_connect(): the QPs will never have keys, or
 * must not be used if they have them. */
int srdma_connection_advance(struct srdma_connection *c);

/* As srdma_disconnect(). 1: the agent has released the QPs and names them to the
 * worker no more; 0: it may still do so. NULL is no connection: 1. */
int srdma_connection_end(struct srdma_connection *c);

#endif
