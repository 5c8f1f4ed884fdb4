/* Names and addresses as text. */
#ifndef SRDMA_NAME_H
#define SRDMA_NAME_H

/* Bytes of a worker's name or of an address as text, with the final NUL. */
enum { SRDMA_NAME_LEN = 64 };

#endif
