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
	  "1100ffff005e12e220c0ffee1f00000000000020000000001b9cead62c11798c"
	  "31884ddcfc339362010000000000000000000000007fffff0000000400000400"
	  "9f2e3d4c",
	  "be49fb63" },
	{ "192.0.2.1:4791", "192.0.2.2:4791",
	  "1100ffff805e12e220c0ffee1f00000000000020000000001b9cead62c11798c"
	  "31884ddcfc339362010000000000000000000000007fffff0000000400000400"
	  "9f2e3d4c",
	  "be49fb63" },
	{ "[2001:db8::1]:4791", "[2001:db8::2]:4791",
	  "1100ffff005e12e220c0ffee1f00000000000020000000001b9cead62c11798c"
	  "31884ddcfc339362010000000000000000000000007fffff0000000400000400"
	  "9f2e3d4c",
	  "6d1e1e0a" },
};
/* clang-format on */

#endif
