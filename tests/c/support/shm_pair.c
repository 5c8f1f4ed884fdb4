#include "support/shm_pair.h"

#include "port/shm/port_shm.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

void shm_make_dir(char dir[64])
{
	strcpy(dir, "/tmp/srdma-test-XXXXXX");
	assert_non_null(mkdtemp(dir));
}

struct srdma_port *shm_wire(const char *dir, const char *name, uint32_t slots)
{
	struct srdma_port *port;

	assert_int_equal(
		srdma_port_shm_create_wire(&port, dir, name, slots, NULL), 0);
	return port;
}

int shm_poll(struct srdma_port *port, struct srdma_event *ev, int n)
{
	return port->ops->poll(port, ev, n);
}

struct srdma_event shm_expect(struct srdma_port *port,
			      enum srdma_event_kind kind)
{
	struct srdma_event ev;

	for (int i = 0; i < SHM_PATIENCE; i++) {
		if (!shm_poll(port, &ev, 1))
			continue;
		assert_int_equal(ev.kind, kind);
		return ev;
	}
	fail_msg("no event of kind %d", kind);
	return ev;
}

void shm_expect_nothing(struct srdma_port *port)
{
	struct srdma_event ev;

	for (int i = 0; i < 600; i++) /* two polls of the sockets */
		assert_int_equal(shm_poll(port, &ev, 1), 0);
}

/* Polls both ports, because both take part in connecting. */
void shm_pair_join(struct shm_pair *p)
{
	struct srdma_event ev;

	p->far = NULL;
	assert_int_equal(p->a->ops->connect(p->a, p->b->address, &p->conn), 0);
	for (int i = 0; i < SHM_PATIENCE && !p->far; i++)
		if (shm_poll(p->b, &ev, 1)) {
			assert_int_equal(ev.kind, SRDMA_EV_ACCEPT);
			p->far = ev.conn;
		}
	assert_non_null(p->far);
	assert_ptr_equal(shm_expect(p->a, SRDMA_EV_UP).conn, p->conn);
}

int shm_pair_setup(void **state)
{
	static struct shm_pair p;

	memset(&p, 0, sizeof(p));
	shm_make_dir(p.dir);
	p.a = shm_wire(p.dir, "a", 16);
	p.b = shm_wire(p.dir, "b", 0);
	shm_pair_join(&p);
	*state = &p;
	return 0;
}

int shm_pair_teardown(void **state)
{
	struct shm_pair *p = *state;

	if (p->a)
		p->a->ops->destroy(p->a);
	if (p->b)
		p->b->ops->destroy(p->b);
	assert_int_equal(rmdir(p->dir), 0); /* no file is left */
	return 0;
}

int shm_send_one(struct srdma_conn *conn, const void *data, uint32_t len)
{
	uint8_t *out = conn->port->ops->reserve(conn);

	if (!out)
		return -EAGAIN;
	memcpy(out, data, len);
	return conn->port->ops->commit(conn, len);
}

int shm_send_number(struct srdma_conn *conn, uint32_t number)
{
	return shm_send_one(conn, &number, sizeof(number));
}

void shm_expect_number(struct srdma_port *port, struct srdma_conn *conn,
		       uint32_t number)
{
	struct srdma_event ev = shm_expect(port, SRDMA_EV_RECV);

	assert_ptr_equal(ev.conn, conn);
	assert_int_equal(ev.buf->len, sizeof(number));
	assert_memory_equal(ev.buf->data, &number, sizeof(number));
	port->ops->buf_put(ev.buf);
}
