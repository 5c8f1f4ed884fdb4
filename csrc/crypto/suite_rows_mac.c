/* CMAC, GMAC and Poly1305 suites (docs/protocol.md 3.3). */
#include "crypto/suite_rows.h"

static const struct srdma_suite rows[] = {
	{
		.id = 0x20,
		.name = "aes-128-cmac",
		.levels = SRDMA_ROW_MAC,
		.recommended = 1,
		.key_len = 16,
		.iv_len = 0,
		.tag_len = 16,
		.tag_min = 12,
		.packets = SRDMA_ROW_PACKETS,
		.forgeries = SRDMA_ROW_FORGERIES,
		.algorithm = "CMAC",
		.primitive = "AES-128-CBC",
		.verbs = &srdma_suite_mac,
		/* RFC 4493 example 3 */
		.answer =
			ANSWER(.key = "\x2b\x7e\x15\x16\x28\xae\xd2\xa6\xab\xf7\x15\x88"
				      "\x09\xcf\x4f\x3c",
			       .ad = "\x6b\xc1\xbe\xe2\x2e\x40\x9f\x96\xe9\x3d\x7e\x11"
				     "\x73\x93\x17\x2a\xae\x2d\x8a\x57",
			       .ad_len = 20,
			       .in = "\x1e\x03\xac\x9c\x9e\xb7\x6f\xac\x45\xaf\x8e\x51"
				     "\x30\xc8\x1c\x46\xa3\x5c\xe4\x11",
			       .in_len = 20,
			       .tag = "\xdf\xa6\x67\x47\xde\x9a\xe6\x30\x30\xca\x32\x61"
				      "\x14\x97\xc8\x27"),
	},
	{
		.id = 0x21,
		.name = "aes-192-cmac",
		.levels = SRDMA_ROW_MAC,
		.key_len = 24,
		.iv_len = 0,
		.tag_len = 16,
		.tag_min = 12,
		.packets = SRDMA_ROW_PACKETS,
		.forgeries = SRDMA_ROW_FORGERIES,
		.algorithm = "CMAC",
		.primitive = "AES-192-CBC",
		.verbs = &srdma_suite_mac,
		/* SP 800-38B, AES-192, 320 bits */
		.answer =
			ANSWER(.key = "\x8e\x73\xb0\xf7\xda\x0e\x64\x52\xc8\x10\xf3\x2b"
				      "\x80\x90\x79\xe5\x62\xf8\xea\xd2\x52\x2c\x6b\x7b",
			       .ad = "\x6b\xc1\xbe\xe2\x2e\x40\x9f\x96\xe9\x3d\x7e\x11"
				     "\x73\x93\x17\x2a\xae\x2d\x8a\x57",
			       .ad_len = 20,
			       .in = "\x1e\x03\xac\x9c\x9e\xb7\x6f\xac\x45\xaf\x8e\x51"
				     "\x30\xc8\x1c\x46\xa3\x5c\xe4\x11",
			       .in_len = 20,
			       .tag = "\x8a\x1d\xe5\xbe\x2e\xb3\x1a\xad\x08\x9a\x82\xe6"
				      "\xee\x90\x8b\x0e"),
	},
	{
		.id = 0x22,
		.name = "aes-256-cmac",
		.levels = SRDMA_ROW_MAC,
		.recommended = 1,
		.key_len = 32,
		.iv_len = 0,
		.tag_len = 16,
		.tag_min = 12,
		.packets = SRDMA_ROW_PACKETS,
		.forgeries = SRDMA_ROW_FORGERIES,
		.algorithm = "CMAC",
		.primitive = "AES-256-CBC",
		.verbs = &srdma_suite_mac,
		/* SP 800-38B, AES-256, 320 bits */
		.answer =
			ANSWER(.key = "\x60\x3d\xeb\x10\x15\xca\x71\xbe\x2b\x73\xae\xf0"
				      "\x85\x7d\x77\x81\x1f\x35\x2c\x07\x3b\x61\x08\xd7"
				      "\x2d\x98\x10\xa3\x09\x14\xdf\xf4",
			       .ad = "\x6b\xc1\xbe\xe2\x2e\x40\x9f\x96\xe9\x3d\x7e\x11"
				     "\x73\x93\x17\x2a\xae\x2d\x8a\x57",
			       .ad_len = 20,
			       .in = "\x1e\x03\xac\x9c\x9e\xb7\x6f\xac\x45\xaf\x8e\x51"
				     "\x30\xc8\x1c\x46\xa3\x5c\xe4\x11",
			       .in_len = 20,
			       .tag = "\xaa\xf3\xd8\xf1\xde\x56\x40\xc2\x32\xf5\xb1\x69"
				      "\xb9\xc9\x11\xe6"),
	},
	{
		.id = 0x30,
		.name = "aes-128-gmac",
		.levels = SRDMA_ROW_MAC,
		.recommended = 1,
		.key_len = 16,
		.iv_len = 12,
		.tag_len = 16,
		.tag_min = 16,
		.packets = SRDMA_ROW_GCM_PACKETS,
		.forgeries = SRDMA_ROW_FORGERIES,
		.algorithm = "AES-128-GCM",
		.verbs = &srdma_suite_aead_mac,
		/* NIST CAVP gcmEncryptExtIV128, no text */
		.answer =
			ANSWER(.key = "\x77\xbe\x63\x70\x89\x71\xc4\xe2\x40\xd1\xcb\x79"
				      "\xe8\xd7\x7f\xeb",
			       .nonce =
				       "\xe0\xe0\x0f\x19\xfe\xd7\xba\x01\x36\xa7\x97\xf3",
			       .ad = "\x7a\x43\xec\x1d\x9c\x0a\x5a\x78\xa0",
			       .ad_len = 9,
			       .in = "\xb1\x65\x33\xa6\x21\x3c\xab",
			       .in_len = 7,
			       .tag = "\x20\x9f\xcc\x8d\x36\x75\xed\x93\x8e\x9c\x71\x66"
				      "\x70\x9d\xd9\x46"),
	},
	{
		.id = 0x31,
		.name = "aes-192-gmac",
		.levels = SRDMA_ROW_MAC,
		.key_len = 24,
		.iv_len = 12,
		.tag_len = 16,
		.tag_min = 16,
		.packets = SRDMA_ROW_GCM_PACKETS,
		.forgeries = SRDMA_ROW_FORGERIES,
		.algorithm = "AES-192-GCM",
		.verbs = &srdma_suite_aead_mac,
		/* NIST CAVP gcmEncryptExtIV192, no text */
		.answer =
			ANSWER(.key = "\x41\xc5\xda\x86\x67\xef\x72\x52\x20\xff\xe3\x9a"
				      "\xe0\xac\x59\x0a\xc9\xfc\xa7\x29\xab\x60\xad\xa0",
			       .nonce =
				       "\x05\xad\x13\xa5\xe2\xc2\xab\x66\x7e\x1a\x6f\xbc",
			       .ad = "\x8b\x5c\x12\x4b\xef\x6e\x2f\x0f\xe4",
			       .ad_len = 9,
			       .in = "\xd8\xc9\x5c\xd5\xfa\x4c\xf1",
			       .in_len = 7,
			       .tag = "\x20\x4b\xdb\x1b\xd6\x21\x54\xbf\x08\x92\x2a\xaa"
				      "\x54\xee\xd7\x05"),
	},
	{
		.id = 0x32,
		.name = "aes-256-gmac",
		.levels = SRDMA_ROW_MAC,
		.recommended = 1,
		.key_len = 32,
		.iv_len = 12,
		.tag_len = 16,
		.tag_min = 16,
		.packets = SRDMA_ROW_GCM_PACKETS,
		.forgeries = SRDMA_ROW_FORGERIES,
		.algorithm = "AES-256-GCM",
		.verbs = &srdma_suite_aead_mac,
		/* NIST CAVP gcmEncryptExtIV256, no text */
		.answer =
			ANSWER(.key = "\x78\xdc\x4e\x0a\xaf\x52\xd9\x35\xc3\xc0\x1e\xea"
				      "\x57\x42\x8f\x00\xca\x1f\xd4\x75\xf5\xda\x86\xa4"
				      "\x9c\x8d\xd7\x3d\x68\xc8\xe2\x23",
			       .nonce =
				       "\xd7\x9c\xf2\x2d\x50\x4c\xc7\x93\xc3\xfb\x6c\x8a",
			       .ad = "\xb9\x6b\xaa\x8c\x1c\x75\xa6\x71\xbf",
			       .ad_len = 9,
			       .in = "\xb2\xd0\x8d\x06\xbe\x5f\x36",
			       .in_len = 7,
			       .tag = "\x3e\x5d\x48\x6a\xa2\xe3\x0b\x22\xe0\x40\xb8\x57"
				      "\x23\xa0\x6e\x76"),
	},
	{
		.id = 0x38,
		.name = "poly1305",
		.levels = SRDMA_ROW_MAC,
		.recommended = 1,
		.key_len = 32,
		.iv_len = 12,
		.tag_len = 16,
		.tag_min = 16,
		.packets = SRDMA_ROW_PACKETS,
		.forgeries = SRDMA_ROW_FORGERIES,
		.algorithm = "ChaCha20-Poly1305",
		.verbs = &srdma_suite_aead_mac,
		/* Wycheproof chacha20_poly1305_test, case 3: no text */
		.answer =
			ANSWER(.key = "\x7a\x4c\xd7\x59\x17\x2e\x02\xeb\x20\x4d\xb2\xc3"
				      "\xf5\xc7\x46\x22\x7d\xf5\x84\xfc\x13\x45\x19\x63"
				      "\x91\xdb\xb9\x57\x7a\x25\x07\x42",
			       .nonce =
				       "\xa9\x2e\xf0\xac\x99\x1d\xd5\x16\xa3\xc6\xf6\x89",
			       .ad = "\xbd\x50\x67\x64\xf2", .ad_len = 5,
			       .in = "\xd2\xc4\x10", .in_len = 3,
			       .tag = "\x90\x6f\xa6\x28\x4b\x52\xf8\x7b\x73\x59\xcb\xaa"
				      "\x75\x63\xc7\x09"),
	},
};

const struct srdma_suite_rows srdma_suite_rows_mac = SRDMA_ROWS(rows);
