/*
 * The datagrams of docs/worked-examples.md. `make examples` writes this file.
 */
#ifndef SRDMA_ICRC_EXAMPLES_H
#define SRDMA_ICRC_EXAMPLES_H

/* clang-format off */
static const struct {
	const char *from, *to, *packet, *icrc;
} icrc_examples[] = {
	{ "192.0.2.1:4791", "192.0.2.2:4791",
	  "1100ffff005e12e220c0ffee1f00000000000020000000008cb90380df4f2ae6"
	  "8eb2b4e4dac21fcc010000000000000000000000007fffff0000000400000400"
	  "00000000",
	  "6dce4e40" },
	{ "192.0.2.1:4791", "192.0.2.2:4791",
	  "1100ffff805e12e220c0ffee1f00000000000020000000008cb90380df4f2ae6"
	  "8eb2b4e4dac21fcc010000000000000000000000007fffff0000000400000400"
	  "00000000",
	  "6dce4e40" },
	{ "[2001:db8::1]:4791", "[2001:db8::2]:4791",
	  "1100ffff005e12e220c0ffee1f00000000000020000000008cb90380df4f2ae6"
	  "8eb2b4e4dac21fcc010000000000000000000000007fffff0000000400000400"
	  "00000000",
	  "be99ab29" },
};
/* clang-format on */

#endif
