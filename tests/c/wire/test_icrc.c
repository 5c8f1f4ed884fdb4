/* The invariant CRC, compared with frames of other implementations. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cmocka.h>

#include "base/addr.h"
#include "wire/icrc.h"
#include "wire/wire.h"

enum { PACKET = 256, IDENTIFICATION = SRDMA_ICRC_LRH + 4 };

/* A captured datagram and the ICRC that it carried. */
struct vector {
	const char *from, *to;
	uint16_t identification; /* srdma always sends 0 */
	const char *packet;	 /* BTH to pad, hex */
	const char *icrc;
};

/*
 * The first two are from test/contrib/roce.uts of scapy, a UC SEND and a CNP
 * "captured on ConnectX-4 Lx". The others are SENDs and an ACKNOWLEDGE of Linux
 * 6.1's rdma_rxe, captured for this test.
 */
static const struct vector vectors[] = {
	{ "192.168.0.7:49152", "192.168.0.7:4791", 1144,
	  "2460ffff000000d300cf17104630818be28935d90e9a95505401be885e500000",
	  "78f353f3" },
	{ "10.0.17.1:0", "10.0.18.1:4791", 0x718c,
	  "8100ffff400001180000000000000000000000000000000000000000",
	  "82fd002a" },
	{ "[fe80::d4e2:61ff:fe7e:4575]:49441",
	  "[fe80::c8e3:66ff:fe60:9943]:4791", 0x0,
	  "0400ffff00000011805900ce5703f81df753107db2a41bfe743b987120a31b83"
	  "1af19b03a96555a93ca06f93a467b09bbac0186d64336bd86e03498fa76512c1"
	  "56adc4ff131aa94fba18e25e",
	  "dedf9427" },
	{ "[fe80::c8e3:66ff:fe60:9943]:49441",
	  "[fe80::d4e2:61ff:fe7e:4575]:4791", 0x0,
	  "1100ffff00000011005900ce1f000001", "01683182" },
	{ "10.77.0.1:49476", "10.77.0.2:4791", 0x6ce8,
	  "0400ffff00000012805c650274faef78e13f7ab2c2ee16f261bd1dc456e46919"
	  "7670d00499d2e855fe32b1722ca0eb0ee065c0a253d694b593b279e996e2020d"
	  "52d211eca5f941a32cf21558",
	  "f2018285" },
};

static uint32_t unhex(uint8_t *out, const char *hex)
{
	static const char digits[] = "0123456789abcdef";
	uint32_t n = 0;

	for (; hex[2 * n]; n++) {
		const char *high = strchr(digits, hex[2 * n]);
		const char *low = strchr(digits, hex[2 * n + 1]);

		assert_true(high && low);
		out[n] = (uint8_t)((high - digits) << 4 | (low - digits));
	}
	return n;
}

static void init(struct srdma_icrc *c, const char *from, const char *to)
{
	struct sockaddr_storage a, b;

	assert_int_equal(srdma_addr_parse(&a, from, SRDMA_ADDR_NO_PORT), 0);
	assert_int_equal(srdma_addr_parse(&b, to, SRDMA_ADDR_NO_PORT), 0);
	srdma_icrc_init(c, (struct sockaddr *)&a, (struct sockaddr *)&b);
}

static void test_captured_frames(void **state)
{
	uint8_t packet[PACKET], wanted[SRDMA_ICRC_LEN], got[SRDMA_ICRC_LEN];
	struct srdma_icrc c;

	(void)state;
	for (size_t i = 0; i < sizeof(vectors) / sizeof(*vectors); i++) {
		const struct vector *v = &vectors[i];
		uint32_t len = unhex(packet, v->packet);

		init(&c, v->from, v->to);
		c.header[IDENTIFICATION] = (uint8_t)(v->identification >> 8);
		c.header[IDENTIFICATION + 1] = (uint8_t)v->identification;
		unhex(wanted, v->icrc);
		srdma_icrc_compute(&c, packet, len, got);
		assert_memory_equal(got, wanted, sizeof(got));
	}
}

/* Every bit matters, except in the byte that routers change. */
static void test_every_bit_changes_icrc(void **state)
{
	uint8_t packet[40] = { 4 }, first[SRDMA_ICRC_LEN], got[SRDMA_ICRC_LEN];
	struct srdma_icrc c;

	(void)state;
	init(&c, "[fd00::1]:4791", "[fd00::2]:4791");
	srdma_icrc_compute(&c, packet, sizeof(packet), first);
	for (uint32_t bit = 0; bit < 8 * sizeof(packet); bit++) {
		packet[bit / 8] ^= (uint8_t)(1 << bit % 8);
		srdma_icrc_compute(&c, packet, sizeof(packet), got);
		assert_int_equal(!memcmp(got, first, sizeof(got)),
				 bit / 8 == 4);
		packet[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

/* Each address, port and length matters. */
static void test_every_header_field_changes_icrc(void **state)
{
	static const char *const from[] = { "[fd00::1]:4791", "[fd00::3]:4791",
					    "[fd00::1]:4792", "10.0.0.1:4791",
					    "10.0.0.3:4791",  "10.0.0.1:4792" };
	uint8_t packet[44] = { 4 }, seen[24][SRDMA_ICRC_LEN];
	struct srdma_icrc c;
	int n = 0;

	(void)state;
	for (int i = 0; i < 6; i++) {
		init(&c, from[i], i < 3 ? "[fd00::2]:4791" : "10.0.0.2:4791");
		srdma_icrc_compute(&c, packet, 40, seen[n++]);
		srdma_icrc_compute(&c, packet, 44, seen[n++]);
		init(&c, i < 3 ? "[fd00::2]:4791" : "10.0.0.2:4791", from[i]);
		srdma_icrc_compute(&c, packet, 40, seen[n++]);
		srdma_icrc_compute(&c, packet, 44, seen[n++]);
	}
	for (int i = 0; i < n; i++)
		for (int k = 0; k < i; k++)
			assert_memory_not_equal(seen[i], seen[k],
						SRDMA_ICRC_LEN);
}

/* A CRC-32 bit by bit, of bytes behind those of crc. */
static uint32_t crc32_of(uint32_t crc, const uint8_t *bytes, uint32_t len)
{
	crc = ~crc;
	for (uint32_t i = 0; i < len; i++) {
		crc ^= bytes[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	return ~crc;
}

/* The ICRC by definition, of a packet whose byte 4 is 0xff. */
static void defined(const struct srdma_icrc *c, const uint8_t *packet,
		    uint32_t len, uint8_t out[SRDMA_ICRC_LEN])
{
	uint32_t crc = crc32_of(crc32_of(0, c->header, c->len), packet, len);

	for (int i = 0; i < SRDMA_ICRC_LEN; i++)
		out[i] = (uint8_t)(crc >> 8 * i);
}

/* The code for this CPU depends on length and alignment. */
static void test_every_length_and_alignment(void **state)
{
	enum { MOST = 300, ALIGNMENTS = 64 };
	uint8_t bytes[MOST + ALIGNMENTS];
	uint8_t wanted[SRDMA_ICRC_LEN], got[SRDMA_ICRC_LEN];
	struct srdma_icrc c;

	(void)state;
	for (uint32_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * i + 7 * i + 1);
	init(&c, "10.0.0.1:4791", "10.0.0.2:4791");
	for (uint32_t at = 0; at < ALIGNMENTS; at++) {
		uint8_t *packet = bytes + at, was = packet[4];

		packet[4] = 0xff;
		for (uint32_t len = SRDMA_BTH_LEN; len <= MOST; len++) {
			srdma_icrc_compute(&c, packet, len, got);
			defined(&c, packet, len, wanted);
			assert_memory_equal(got, wanted, sizeof(got));
		}
		packet[4] = was;
	}
}

/*
 * Headers that were used before give the ICRC of new ones, and a packet is as
 * it was.
 */
static void test_lengths_in_turn(void **state)
{
	static const uint32_t lengths[] = {
		12, 40, 40, 44, 13, 300, 300, 40, 12
	};
	uint8_t packet[300], copy[300];
	uint8_t wanted[SRDMA_ICRC_LEN], got[SRDMA_ICRC_LEN];
	struct srdma_icrc used, fresh;

	(void)state;
	init(&used, "[fd00::1]:4791", "[fd00::2]:4791");
	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		memset(packet, (int)i + 1, sizeof(packet));
		memcpy(copy, packet, sizeof(packet));
		init(&fresh, "[fd00::1]:4791", "[fd00::2]:4791");
		srdma_icrc_compute(&fresh, packet, lengths[i], wanted);
		srdma_icrc_compute(&used, packet, lengths[i], got);
		assert_memory_equal(got, wanted, sizeof(got));
		assert_memory_equal(packet, copy, sizeof(packet));
	}
}

static void test_address_parsing(void **state)
{
	static const char *const wrong[] = {
		"",
		"10.0.0.1",
		"10.0.0.1:",
		"10.0.0.1:x",
		"10.0.0.1:65536",
		"10.0.0:1",
		"fd00::1:1",
		"[fd00::1]",
		"[10.0.0.1]:1",
		"[fd00::1:1",
		"name:4791",
		":4791",
		"[fd00:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:1]:1",
	};
	static const char *const right[] = { "10.0.0.1:0", "10.0.0.1:65535",
					     "[fd00::1]:4791" };
	struct sockaddr_storage a;
	char text[SRDMA_NAME_LEN];

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		assert_int_equal(
			srdma_addr_parse(&a, wrong[i], SRDMA_ADDR_NO_PORT),
			-EINVAL);
	for (size_t i = 0; i < sizeof(right) / sizeof(*right); i++) {
		assert_int_equal(
			srdma_addr_parse(&a, right[i], SRDMA_ADDR_NO_PORT), 0);
		srdma_addr_format(text, (struct sockaddr *)&a);
		assert_string_equal(text, right[i]);
	}
	assert_int_equal(srdma_addr_parse(&a, "[fd00::1]", 7), 0);
	assert_int_equal(srdma_addr_port((struct sockaddr *)&a), 7);
	assert_int_equal(srdma_addr_parse(&a, "10.0.0.1", 7), 0);
	assert_int_equal(srdma_addr_port((struct sockaddr *)&a), 7);
	assert_int_equal(srdma_addr_parse(&a, "10.0.0.1:8", 7), 0);
	assert_int_equal(srdma_addr_port((struct sockaddr *)&a), 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_captured_frames),
		cmocka_unit_test(test_every_bit_changes_icrc),
		cmocka_unit_test(test_every_header_field_changes_icrc),
		cmocka_unit_test(test_every_length_and_alignment),
		cmocka_unit_test(test_lengths_in_turn),
		cmocka_unit_test(test_address_parsing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
