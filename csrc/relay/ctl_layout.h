/*
 * Layouts of control messages (docs/local-interface.md 3): the fields of each
 * body and their places in struct srdma_ctl_msg. Private to ctl.c.
 */
#ifndef SRDMA_CTL_LAYOUT_H
#define SRDMA_CTL_LAYOUT_H

#include "relay/ctl.h"

enum srdma_ctl_field_type {
	SRDMA_FIELD_END = 0, /* ends a layout */
	SRDMA_FIELD_UINT,    /* 1, 2, 4 or 8 bytes, big-endian on the wire */
	SRDMA_FIELD_BYTES,
	SRDMA_FIELD_TEXT, /* UTF-8, padded with at least one zero */
	SRDMA_FIELD_ZERO,
	SRDMA_FIELD_COUNTERS, /* 8 bytes each, up to the end */
	SRDMA_FIELD_TOKEN,    /* struct srdma_ctl_token, up to the end */
};

struct srdma_ctl_field {
	uint8_t type;  /* enum srdma_ctl_field_type */
	uint16_t size; /* bytes on the wire; 0: variable */
	uint16_t at;   /* offset of the member in struct srdma_ctl_msg */
};

struct srdma_ctl_kind_layout {
	const char *name;
	const struct srdma_ctl_field *body[2]; /* by enum srdma_ctl_side */
};

/* Layouts of a kind; NULL if it is unknown. */
const struct srdma_ctl_kind_layout *srdma_ctl_layout_of(uint32_t kind);

#endif
