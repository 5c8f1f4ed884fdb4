/* The port of a program at its agent (docs/agent.md 13). */
#include "host/talk.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/fake_agent.h"
#include "support/says.h"

enum { LONG_MS = 20000, PORT = 0x1e61 };

#define RANDOM "sixteen letters."
/* A byte string of 16, and a number of two bytes, behind their names. */
#define KEY_FIELD  "key\x50" RANDOM
#define PORT_FIELD "port\x19\x1e\x61"

static struct fake_agent agent;
static struct srdma_agent_place place;
static const struct srdma_talk_self self = {
	.agent = &place,
	.worker = "/worker",
	.identity = "me",
};
static int no_random; /* 1: getrandom() fails */

/* In place of that of libc. */
ssize_t getrandom(void *out, size_t len, unsigned flags)
{
	(void)flags;
	if (no_random || len != strlen(RANDOM)) {
		errno = ENOSYS;
		return -1;
	}
	memcpy(out, RANDOM, len);
	return (ssize_t)len;
}

static void wait_end(int fd)
{
	char waste[256];

	while (recv(fd, waste, sizeof(waste), 0) > 0)
		;
}

static void confirm(int fd)
{
	fake_agent_report(fd, "serving", "", NULL);
	wait_end(fd);
}

static void confirm_and_end(int fd)
{
	fake_agent_report(fd, "serving", "", NULL);
	agent.act = confirm;
}

static int setup(void **state)
{
	static char folder[32];

	strcpy(folder, "/tmp/srdma-XXXXXX");
	assert_non_null(mkdtemp(folder));
	*state = folder;
	memset(&agent, 0, sizeof(agent));
	agent.act = confirm_and_end;
	fake_agent_start(&agent, folder);
	strcpy(place.path, agent.path);
	no_random = 0;
	return 0;
}

static int teardown(void **state)
{
	fake_agent_stop(&agent);
	return rmdir(*state);
}

static void is_serving(struct srdma_lasting_channel *service)
{
	struct srdma_agent_event e;

	assert_int_equal(
		srdma_lasting_next(service, &e, srdma_socket_deadline(LONG_MS)),
		0);
	assert_string_equal(e.event, "serving");
	assert_non_null(strstr(agent.first, KEY_FIELD));
}

/* The program that comes back has the key that it had, and its port. */
static void test_key_of_a_port(void **state)
{
	struct srdma_talk_port port = { .number = 0 };
	struct srdma_lasting_channel *service;

	(void)state;
	assert_int_equal(srdma_talk_serve(&service, &self, &port), 0);
	assert_memory_equal(port.key, RANDOM, sizeof(port.key));
	is_serving(service);
	assert_null(strstr(agent.first, PORT_FIELD));
	port.number = PORT;
	assert_int_equal(srdma_talk_keep(service, &self, &port), 0);
	is_serving(service);
	assert_non_null(strstr(agent.first, PORT_FIELD));
	srdma_lasting_close(service);
	assert_int_equal(agent.channels, 2);
}

static void test_no_random_bytes(void **state)
{
	struct srdma_talk_port port = { .number = PORT };
	struct srdma_lasting_channel *service;

	(void)state;
	no_random = 1;
	assert_int_equal(srdma_talk_serve(&service, &self, &port), -EIO);
	says("no random bytes");
	assert_null(service);
	assert_int_equal(agent.channels, 0);
}

static void join(int fd)
{
	fake_agent_report(fd, "joined", "", NULL);
	wait_end(fd);
}

/* The fields are CBOR: a byte string of 16 bytes begins with 0x50. */
static void test_use_of_a_group(void **state)
{
	struct srdma_talk_group group = {
		.gid = (const uint8_t *)RANDOM,
		.qp_num = 7,
		.token = (const uint8_t *)"another 16 bytes",
		.member = 1,
	};
	struct srdma_agent_event e;
	struct srdma_channel *channel;

	(void)state;
	agent.act = join;
	assert_int_equal(srdma_talk_group(&channel, &self, &group), 0);
	assert_int_equal(
		srdma_channel_next(channel, &e, srdma_socket_deadline(LONG_MS)),
		0);
	assert_string_equal(e.event, "joined");
	srdma_channel_close(channel);
	assert_non_null(strstr(agent.first, "do\x65group"));
	assert_non_null(strstr(agent.first, "group\x50" RANDOM));
	assert_non_null(strstr(agent.first, "token\x50"
					    "another 16 bytes"));
	assert_non_null(strstr(agent.first, "qpn\x07"));
	assert_non_null(strstr(agent.first, "member\x01"));
	strcpy(place.path, "/nowhere");
	assert_int_equal(srdma_talk_group(&channel, &self, &group), -ENOENT);
	assert_null(channel);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_key_of_a_port, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_no_random_bytes, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_use_of_a_group, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
