#include "support/shm_raw.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>

#include <cmocka.h>

struct sockaddr_un shm_path(const char *dir, const char *name)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/%s.sock", dir, name);
	return sa;
}

static int new_socket(void)
{
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	assert_true(sock >= 0);
	return sock;
}

int shm_listen(const char *dir, const char *name)
{
	struct sockaddr_un sa = shm_path(dir, name);
	int sock = new_socket();

	assert_int_equal(bind(sock, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(listen(sock, 8), 0);
	return sock;
}

int shm_dial(const char *dir, const char *name)
{
	struct sockaddr_un sa = shm_path(dir, name);
	int sock = new_socket();

	assert_int_equal(connect(sock, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return sock;
}
