/* The own address for a leg over verbs. The devices are folders like those of
 * the kernel; their network interface is lo, by which 127.0.0.0/8 and ::1 are
 * reached on every machine. */
#include "host/host_device.h"

#include <errno.h>
#include <ftw.h>
#include <net/if.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/addr.h"
#include "support/says.h"

#define V4(last) "0000:0000:0000:0000:0000:ffff:7f00:000" #last

static const char LOCAL[] = "fe80:0000:0000:0000:0000:0000:0000:0001";
static const char LOOPBACK[] = "0000:0000:0000:0000:0000:0000:0000:0001";

static char root[64];

/* --- devices ------------------------------------------------------------- */

static void write_file(const char *folder, const char *name, int number,
		       const char *text)
{
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s/%d", folder, name, number);
	file = fopen(path, "w");
	assert_non_null(file);
	fprintf(file, "%s\n", text);
	fclose(file);
}

struct entry {
	const char *gid, *type, *netdev;
};

/* A port of a device, with the entries and two unused ones. */
static void add_port(const char *device, int port, const struct entry *entries,
		     int n)
{
	static const char *const folders[] = {
		"",	      "/ports",		  "/ports/%d",	     "/gids",
		"/gid_attrs", "/gid_attrs/types", "/gid_attrs/ndevs"
	};
	char place[128], path[256];

	snprintf(place, sizeof(place), "%s/%s/ports/%d", root, device, port);
	for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++) {
		if (i < 2)
			snprintf(path, sizeof(path), "%s/%s%s", root, device,
				 folders[i]);
		else
			snprintf(path, sizeof(path), "%s%s", place,
				 i == 2 ? "" : folders[i]);
		mkdir(path, 0700);
	}
	for (int i = 0; i < n; i++) {
		write_file(place, "gids", i, entries[i].gid);
		if (entries[i].type)
			write_file(place, "gid_attrs/types", i,
				   entries[i].type);
		write_file(place, "gid_attrs/ndevs", i, entries[i].netdev);
	}
	write_file(place, "gids", n, V4(9));
	write_file(place, "gids", n + 1, "no GID");
}

static int setup(void **state)
{
	(void)state;
	strcpy(root, "/tmp/srdma-devices-XXXXXX");
	return !mkdtemp(root);
}

static int remove_one(const char *path, const struct stat *s, int type,
		      struct FTW *at)
{
	(void)s;
	(void)type;
	(void)at;
	return remove(path);
}

static int teardown(void **state)
{
	(void)state;
	return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static int route_to(struct srdma_host_route *r, const char *peer,
		    const char *device)
{
	memset(r, 0, sizeof(*r));
	assert_int_equal(srdma_addr_parse(&r->peer, peer, 7), 0);
	return srdma_host_device_route(r, root, device);
}

static void expect_own(const struct srdma_host_route *r, const char *own)
{
	char text[SRDMA_NAME_LEN];

	srdma_addr_format(text, (const struct sockaddr *)&r->own);
	assert_string_equal(text, own);
}

static uint32_t scope(const struct sockaddr_storage *address)
{
	return ((const struct sockaddr_in6 *)(const void *)address)
		->sin6_scope_id;
}

/* --- tests --------------------------------------------------------------- */

static void test_without_a_name_the_kernel_routes(void **state)
{
	struct srdma_host_route r;

	(void)state;
	assert_int_equal(route_to(&r, "127.0.0.5:4791", NULL), 0);
	expect_own(&r, "127.0.0.1:0");
	assert_int_equal(route_to(&r, "127.0.0.5:4791", ""), 0);
	assert_true(route_to(&r, "255.255.255.255:1", NULL) < 0);
	says("no route to the worker's leg at 255.255.255.255:1");
}

static void test_unknown_device(void **state)
{
	struct srdma_host_route r;

	(void)state;
	assert_int_equal(route_to(&r, "127.0.0.1:1", "rxe9"), -ENODEV);
	says("rxe9 is no RDMA device of this machine, which has none");
	add_port("mlx5_0", 1, NULL, 0);
	add_port("mlx5_1", 1, NULL, 0);
	assert_int_equal(route_to(&r, "127.0.0.1:1", "rxe9"), -ENODEV);
	says("mlx5_0");
	says(", ");
	says("mlx5_1");
	assert_int_equal(route_to(&r, "127.0.0.1:1", "../x"), -ENODEV);
	assert_int_equal(route_to(&r, "127.0.0.1:1", "mlx5_0/ports"), -ENODEV);
}

/* The source of the kernel's route, 127.0.0.1, is the third entry. */
static void test_source_of_the_route_over_the_device(void **state)
{
	static const struct entry first[] = {
		{ "fe80:0000:0000:0000:0000:0000:0000:0001", "RoCE v2", "lo" },
		{ V4(2), "RoCE v2", "lo" },
	};
	static const struct entry second[] = {
		{ V4(1), "IB/RoCE v1", "lo" },
		{ V4(1), NULL, "lo" },
		{ V4(3), "RoCE v2", "no-such-netdev" },
		{ V4(1), "RoCE v2", "lo" },
	};
	struct srdma_host_route r;

	(void)state;
	add_port("mlx5_0", 1, first, 2);
	add_port("mlx5_0", 2, second, 4);
	assert_int_equal(route_to(&r, "127.0.0.5:4791", "mlx5_0"), 0);
	expect_own(&r, "127.0.0.1:0");
}

static void test_device_without_a_route_gives_its_first_address(void **state)
{
	static const struct entry entry = { V4(2), "RoCE v2",
					    "no-such-netdev" };
	struct srdma_host_route r;

	(void)state;
	add_port("mlx5_0", 1, &entry, 1);
	assert_int_equal(route_to(&r, "127.0.0.5:4791", "mlx5_0"), 0);
	expect_own(&r, "127.0.0.2:0");
}

static void test_device_without_an_address_of_the_family(void **state)
{
	static const struct entry entry = { V4(2), "RoCE v2", "lo" };
	struct srdma_host_route r;

	(void)state;
	add_port("mlx5_0", 1, &entry, 1);
	assert_int_equal(route_to(&r, "[::1]:4791", "mlx5_0"), -EADDRNOTAVAIL);
	says("mlx5_0 has no IPv6 address");
	assert_int_equal(route_to(&r, "[fe80::9]:4791", "mlx5_0"),
			 -EADDRNOTAVAIL);
	says("no link-local IPv6 address");
	add_port("mlx5_1", 1, NULL, 0);
	assert_int_equal(route_to(&r, "127.0.0.5:4791", "mlx5_1"),
			 -EADDRNOTAVAIL);
	says("no IPv4 address");
}

static void test_ipv6_address(void **state)
{
	const struct entry entries[] = { { LOCAL, "RoCE v2", "lo" },
					 { LOOPBACK, "RoCE v2", "lo" } };
	struct srdma_host_route r;

	(void)state;
	add_port("mlx5_0", 1, entries, 2);
	assert_int_equal(route_to(&r, "[::1]:4791", "mlx5_0"), 0);
	expect_own(&r, "[::1]:0");
	assert_int_equal(scope(&r.own), 0);
}

/* Both ends get the network interface of the device. */
static void test_link_local_address(void **state)
{
	const struct entry entry = { LOCAL, "RoCE v2", "lo" };
	struct srdma_host_route r;

	(void)state;
	assert_int_equal(route_to(&r, "[fe80::9]:4791", NULL), -ENODEV);
	says("no interface has one with RDMA here");
	add_port("mlx5_0", 1, &entry, 1);
	assert_int_equal(route_to(&r, "[fe80::9]:4791", "mlx5_0"), 0);
	expect_own(&r, "[fe80::1]:0");
	assert_int_equal(scope(&r.own), if_nametoindex("lo"));
	assert_int_equal(scope(&r.peer), if_nametoindex("lo"));
	/* the only one; whether the kernel routes it depends on the machine */
	route_to(&r, "[fe80::9]:4791", NULL);
	assert_int_equal(scope(&r.peer), if_nametoindex("lo"));
	add_port("mlx5_1", 1, &(struct entry){ LOCAL, "RoCE v2", "eth9" }, 1);
	assert_int_equal(route_to(&r, "[fe80::9]:4791", NULL), -ENODEV);
	says("more than one interface");
}

#define each(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		each(test_without_a_name_the_kernel_routes),
		each(test_unknown_device),
		each(test_source_of_the_route_over_the_device),
		each(test_device_without_a_route_gives_its_first_address),
		each(test_device_without_an_address_of_the_family),
		each(test_ipv6_address),
		each(test_link_local_address),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
