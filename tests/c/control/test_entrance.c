/* Limits of connections that are not authorised (docs/agent.md 3, rule 2): one
 * more closes the oldest silent one, of the same address or of a network that has
 * the most. */
#include "control/entrance.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/time.h"

enum {
	CLIENTS = ENTRANCE_CANDIDATES + ENTRANCE_PER_ADDRESS + 2,
	NONE = CLIENTS,
};

static struct loop loop;
static struct entrance *entrance;
static struct sockaddr_in at;
static int listener, client[CLIENTS];
static unsigned clients, begun;
static SSL_CTX *tls; /* NULL: peers are refused */

static SSL_CTX *begin(void *ctx, struct reason *r)
{
	(void)ctx;
	begun++;
	reason_set(r, "clock", "not now");
	return tls;
}

static void refused(void *ctx, const char *address, const struct reason *r)
{
	(void)ctx;
	assert_string_equal(address, "127.0.0.1");
	assert_string_equal(r->text, "not now");
}

static int setup(void **state)
{
	const struct rlimit files = { 4096, 4096 };
	socklen_t len = sizeof(at);
	const struct entrance_params params = { .loop = &loop,
						.begin = begin,
						.refused = refused };
	struct entrance_params p = params;

	(void)state;
	setrlimit(RLIMIT_NOFILE, &files);
	clients = begun = 0;
	at = (struct sockaddr_in){ .sin_family = AF_INET };
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&at, len), 0);
	assert_int_equal(listen(listener, 16), 0);
	getsockname(listener, (struct sockaddr *)&at, &len);
	assert_int_equal(loop_open(&loop), 0);
	p.listener = listener;
	return entrance_create(&entrance, &p);
}

static int teardown(void **state)
{
	(void)state;
	while (clients)
		close(client[--clients]);
	entrance_destroy(entrance);
	SSL_CTX_free(tls);
	tls = NULL;
	loop_close(&loop);
	close(listener);
	return 0;
}

/* Connects from 127.0.0.`host`. */
static void dial(unsigned host)
{
	struct sockaddr_in from = { .sin_family = AF_INET };
	const int fd = socket(AF_INET, SOCK_STREAM, 0);

	from.sin_addr.s_addr = htonl(0x7f000000 | host);
	assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	client[clients++] = fd;
}

/* Connects, and waits until it is admitted. */
static void join(unsigned host)
{
	dial(host);
	loop_wait(&loop, loop_now() + 10 * SRDMA_SECOND);
}

static int is_closed(unsigned i)
{
	char byte;

	return recv(client[i], &byte, 1, MSG_DONTWAIT) == 0 || errno != EAGAIN;
}

/* 1: client `gone` is closed, and no other one. */
static int only_closed(unsigned gone)
{
	for (unsigned i = 0; i < clients; i++)
		if (is_closed(i) != (i == gone))
			return 0;
	return 1;
}

/* Sends the first byte of a handshake, and waits until it is taken. */
static void speak(unsigned i)
{
	const unsigned before = begun;

	assert_int_equal(write(client[i], "\x16", 1), 1);
	while (begun == before)
		loop_wait(&loop, loop_now() + 10 * SRDMA_SECOND);
}

static void test_one_more_of_an_address_closes_its_oldest(void **state)
{
	(void)state;
	join(2);
	for (unsigned i = 0; i < ENTRANCE_PER_ADDRESS; i++)
		join(3);
	assert_true(only_closed(NONE));
	join(3);
	assert_true(only_closed(1));
}

static void test_one_more_of_all_closes_the_oldest(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ENTRANCE_CANDIDATES; i++)
		join(2 + i / ENTRANCE_PER_ADDRESS);
	assert_true(only_closed(NONE));
	join(200);
	assert_true(only_closed(0));
}

/* One candidate more than an address may have. All but the newest and `silent`
 * send the first byte of a handshake. */
static void crowd(unsigned silent)
{
	tls = SSL_CTX_new(TLS_server_method());
	join(2);
	for (unsigned i = 1; i <= ENTRANCE_PER_ADDRESS; i++) {
		join(3);
		if (i != silent)
			speak(i);
	}
	join(3);
}

static void test_silent_ones_of_an_address_are_closed_first(void **state)
{
	(void)state;
	crowd(2);
	assert_true(only_closed(2));
}

static void test_bytes_that_are_not_taken_count(void **state)
{
	(void)state;
	join(2);
	for (unsigned i = 0; i < ENTRANCE_PER_ADDRESS; i++)
		join(3);
	dial(3);
	assert_int_equal(write(client[1], "\x16", 1), 1);
	loop_wait(&loop, loop_now() + 10 * SRDMA_SECOND);
	assert_int_equal(begun, 0);
	assert_true(only_closed(2));
}

static void test_handshakes_of_an_address_are_closed_too(void **state)
{
	(void)state;
	crowd(NONE);
	assert_true(only_closed(1));
}

static void test_silent_ones_of_all_are_closed_first(void **state)
{
	(void)state;
	tls = SSL_CTX_new(TLS_server_method());
	for (unsigned i = 0; i < ENTRANCE_CANDIDATES; i++)
		join(2 + i / ENTRANCE_PER_ADDRESS);
	speak(0);
	join(200);
	assert_true(only_closed(1));
}

/* A network with many addresses fills all places by handshakes that stop: a silent
 * connection of another one stays, until it is one of as many. */
static void test_the_largest_network_gives_way(void **state)
{
	enum { OTHER = 0x000200 }; /* 127.0.2.0 */

	(void)state;
	tls = SSL_CTX_new(TLS_server_method());
	join(OTHER);
	for (unsigned i = 1; i < ENTRANCE_CANDIDATES; i++) {
		join(2 + i / ENTRANCE_PER_ADDRESS);
		speak(i);
	}
	join(100);
	assert_true(only_closed(1));
}

static void test_silent_connections_are_closed_after_10_s(void **state)
{
	const uint64_t begin_at = loop_now();
	uint64_t due;

	(void)state;
	assert_int_equal(entrance_check(entrance, begin_at), SRDMA_NEVER);
	join(2);
	due = entrance_check(entrance, loop_now());
	assert_in_range(due - begin_at, 10 * SRDMA_SECOND, 20 * SRDMA_SECOND);
	entrance_check(entrance, due - 1);
	assert_false(is_closed(0));
	assert_int_equal(entrance_check(entrance, due), SRDMA_NEVER);
	assert_true(is_closed(0));
}

static void test_first_bytes_begin_the_handshake(void **state)
{
	(void)state;
	join(1);
	assert_int_equal(begun, 0);
	assert_int_equal(write(client[0], "x", 1), 1);
	while (!begun)
		loop_wait(&loop, loop_now() + 10 * SRDMA_SECOND);
	assert_true(is_closed(0));
}

static void test_lack_of_descriptors_closes_the_oldest(void **state)
{
	struct rlimit files;
	struct sockaddr_in from = at;
	int last, fd;
	uint64_t due;

	(void)state;
	join(1);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&from, sizeof(from)),
			 0);
	last = dup(fd);
	close(last);
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = (rlim_t)last;
	setrlimit(RLIMIT_NOFILE, &files);
	loop_wait(&loop, loop_now() + 10 * SRDMA_SECOND);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	assert_true(is_closed(0));
	/* The listener rests, and then admits the connection, whose limit of
	 * time then counts. */
	due = entrance_check(entrance, loop_now());
	loop_wait(&loop, 0);
	assert_int_equal(entrance_check(entrance, due), SRDMA_NEVER);
	loop_wait(&loop, loop_now() + 10 * SRDMA_SECOND);
	assert_int_not_equal(entrance_check(entrance, due), SRDMA_NEVER);
	close(fd);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_one_more_of_an_address_closes_its_oldest),
		TEST(test_one_more_of_all_closes_the_oldest),
		TEST(test_silent_ones_of_an_address_are_closed_first),
		TEST(test_bytes_that_are_not_taken_count),
		TEST(test_handshakes_of_an_address_are_closed_too),
		TEST(test_silent_ones_of_all_are_closed_first),
		TEST(test_the_largest_network_gives_way),
		TEST(test_silent_connections_are_closed_after_10_s),
		TEST(test_first_bytes_begin_the_handshake),
		TEST(test_lack_of_descriptors_closes_the_oldest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
