/*
 * Reads maps of the control link: deterministic CBOR (RFC 8949 4.2.1) with text
 * keys, as docs/protocol.md 8 says. The functions accept any input.
 */
#ifndef CONTROL_FIELDS_H
#define CONTROL_FIELDS_H

#include <stddef.h>
#include <stdint.h>

/* A value of another type has one of the other numbers of RFC 8949 3.1. */
enum field_type { FIELD_UINT = 0, FIELD_TEXT = 3 };

struct field {
	unsigned type;
	uint64_t number;     /* of FIELD_UINT */
	const uint8_t *text; /* of FIELD_TEXT, valid UTF-8; in the input */
	size_t len;
};

/*
 * 0 if the input is exactly one map in deterministic encoding, of integers, byte
 * and text strings, arrays, maps and booleans; else -EPROTO.
 */
int fields_check(const uint8_t *in, size_t len);

/* The value of a key of a map that fields_check() accepted. 1, or 0: the map does
 * not have the key. */
int fields_find(struct field *out, const uint8_t *in, size_t len,
		const char *key);

#endif
