/*
 * A relay whose peer has the keys and whose host posts what it likes: packets of
 * any kind at any time, correctly sealed, and descriptors. Nothing outside the
 * regions changes, and nothing in a region that grants no right to change it.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "port/sim/port_mem.h"
#include "relay/leg.h"
#include "relay/relay.h"
#include "session/session.h"
#include "wire/wire.h"

#define CHECK(x)                                                               \
	do {                                                                   \
		if (!(x))                                                      \
			abort();                                               \
	} while (0)

enum {
	ROOM = 16384, /* of each part of the memory */
	PEER_QPN = 0x123456,
	FIRST_PN = (1 << 23) + 5,
	SECRET = 16,
	SUITE = 1, /* aes-128-gcm */
	BUFFERS = 32,
};

/* The fuzzer's bytes, followed by zeros. */
struct input {
	const uint8_t *at;
	size_t left;
};

/*
 * The parts of the host's memory: a region with all rights, one that may be read,
 * and bytes that belong to no region.
 */
static struct {
	uint8_t all[ROOM], readable[ROOM], outside[ROOM];
} memory;

struct scene {
	struct srdma_mem_wire_params wire;
	struct srdma_mem_host_params host;
	struct srdma_relay *relay;
	struct srdma_leg *leg;
	struct srdma_port *far;
	struct srdma_conn *conn, *posts; /* the peer's end; the leg */
	struct srdma_session *peer;
	struct srdma_qp_info qp;
	uint32_t key[2]; /* of `all` and `readable` */
	uint64_t now, request, answered, seed;
	struct input in;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t next(struct input *in)
{
	if (!in->left)
		return 0;
	in->left--;
	return *in->at++;
}

static uint32_t next32(struct input *in)
{
	uint32_t n = 0;

	for (int i = 0; i < 4; i++)
		n = n << 8 | next(in);
	return n;
}

static int fill(void *ctx, uint8_t *out, size_t len)
{
	uint64_t *seed = ctx;

	while (len--) {
		*seed = *seed * UINT64_C(6364136223846793005) +
			1442695040888963407;
		*out++ = (uint8_t)(*seed >> 56);
	}
	return 0;
}

/* --- the scene ------------------------------------------------------------- */

static uint32_t add_region(struct scene *s, uint8_t *at, uint32_t access)
{
	const struct srdma_mr_params params = {
		.region = { .addr = (uintptr_t)at,
			    .length = ROOM,
			    .access = access,
			    .fd = -1 },
	};
	uint32_t key;

	CHECK(!srdma_relay_mr_reg(s->relay, s->leg, &params, &key));
	return key;
}

static void open_relay(struct scene *s)
{
	struct srdma_relay_params params = {
		.mtu = 1024,
		.window = 32,
		.reads = 4,
		.random = fill,
		.random_ctx = &s->seed,
	};
	struct srdma_leg_params leg = { .ring = 64, .fds = { -1, -1, -1 } };
	const struct srdma_qp_params qp = { .sq = 8, .rq = 8 };
	struct srdma_leg_answer answer;

	s->wire.bufs = s->host.bufs = BUFFERS;
	CHECK(!srdma_port_mem_wire_pair(&params.wire, &s->far, &s->wire));
	CHECK(!srdma_port_mem_host(&params.host, &s->host));
	CHECK(!srdma_relay_create(&s->relay, &params));
	CHECK(!srdma_relay_leg_open(s->relay, &leg, &s->leg, &answer));
	s->posts = s->leg->conn;
	srdma_relay_run(s->relay, s->now += 1000, 64);
	s->key[0] = add_region(s, memory.all, SRDMA_ACCESS_ALL);
	s->key[1] = add_region(s, memory.readable, SRDMA_ACCESS_REMOTE_READ);
	CHECK(!srdma_relay_qp_init(s->relay, s->leg, &qp, &s->qp));
}

static void give_keys(struct scene *s)
{
	struct srdma_session_params p = { .role = 0,
					  .suite = SUITE,
					  .level = SRDMA_LEVEL_AEAD,
					  .tag_len = 16,
					  .secret_len = SECRET,
					  .window = 64,
					  .mtu = 1024,
					  .local_qpn = PEER_QPN,
					  .peer_qpn = s->qp.qpn,
					  .tx_pn = FIRST_PN,
					  .rx_pn = s->qp.pn };
	struct srdma_qp_keys k = { .qpn = s->qp.qpn,
				   .role = 1,
				   .suite = SUITE,
				   .level = SRDMA_LEVEL_AEAD,
				   .tag_len = 16,
				   .secret_len = SECRET,
				   .peer_qpn = PEER_QPN,
				   .peer_pn = FIRST_PN,
				   .peer_mtu = 1024,
				   .peer_window = 32,
				   .peer_reads = 4,
				   .peer_wire = "b" };

	memset(p.generation, 9, sizeof(p.generation));
	memset(p.local_eid, 3, sizeof(p.local_eid));
	memset(p.tx_secret, 1, SECRET);
	memset(p.rx_secret, 2, SECRET);
	memcpy(p.peer_eid, s->qp.eid, sizeof(p.peer_eid));
	memcpy(k.generation, p.generation, sizeof(k.generation));
	memcpy(k.peer_eid, p.local_eid, sizeof(k.peer_eid));
	memcpy(k.tx_secret, p.rx_secret, SECRET);
	memcpy(k.rx_secret, p.tx_secret, SECRET);
	CHECK(!srdma_session_create(&s->peer, &p));
	CHECK(!srdma_relay_qp_keys(s->relay, s->leg, &k));
	CHECK(!s->far->ops->connect(s->far, "a", &s->conn));
	srdma_relay_run(s->relay, s->now += 1000, 64);
}

static void begin(struct scene *s, const uint8_t *data, size_t size)
{
	memset(s, 0, sizeof(*s));
	memset(&memory, 0xcc, sizeof(memory));
	s->in = (struct input){ data, size };
	s->now = 1;
	open_relay(s);
	give_keys(s);
}

/* --- the peer ---------------------------------------------------------------- */

/* Usually within a region, often at its edges. */
static uint64_t address(struct input *in)
{
	uint8_t how = next(in);
	uint8_t *part = how & 1 ? memory.readable : memory.all;
	uint64_t at = (uintptr_t)part + next(in) * 64u;

	if (how & 2)
		at = (uintptr_t)part + ROOM - next(in);
	if (how & 4)
		at += (uint64_t)next32(in) << 16;
	return at;
}

static uint32_t any_key(const struct scene *s, uint8_t how)
{
	return s->key[how & 1] + (how & 0xe0 ? 0 : how);
}

static void make_ack(struct scene *s, struct srdma_packet *p)
{
	struct input *in = &s->in;
	struct srdma_ack_body *a = &p->ack;

	a->kind = next(in) % 8;
	a->reason = next(in) % 32;
	a->gaps = next(in) % 4;
	a->skips = next(in) & 1;
	a->request_id = (uint32_t)p->request_id;
	a->offset = p->offset;
	a->highest_pn = (uint32_t)srdma_session_highest(s->peer) + next(in) - 8;
	a->recv_credit = next(in);
	a->request_credit = a->request_id + next(in);
	a->path = next(in) & 1 ? next32(in) : 0;
	for (uint8_t i = 0; i < a->gaps; i++)
		a->gap[i] = (struct srdma_gap){ a->request_id + next(in),
						next32(in) & 0xffff, next(in) };
}

static void send_packet(struct scene *s)
{
	static uint8_t payload[SRDMA_MAX_PAYLOAD];
	struct input *in = &s->in;
	const uint8_t how = next(in);
	struct srdma_packet p = { .opcode = next(in) % SRDMA_OP_COUNT };
	const uint32_t traits = srdma_wire_traits(p.opcode);
	uint64_t *id = traits & SRDMA_T_REQUEST ? &s->request : &s->answered;
	uint8_t *out;
	int len;

	p.request_id = *id + (how & 3) - (how >> 2 & 1);
	p.offset = how & 8 ? next32(in) & 0x3fff : 0;
	p.flags = how & 16 ? next(in) & 7 : 0;
	p.depth = next(in) & 63;
	p.va = address(in);
	p.rkey = any_key(s, next(in));
	p.dma_len = next(in) * 16u;
	p.imm = next32(in);
	p.swap_add = next(in);
	if (traits & SRDMA_T_PAYLOAD)
		p.payload_len = next(in) * 4u;
	if (traits & SRDMA_T_ACK)
		make_ack(s, &p);
	out = s->far->ops->reserve(s->conn);
	if (!out)
		return;
	memset(payload, next(in), sizeof(payload));
	len = srdma_session_seal(s->peer, &p, payload, out, SRDMA_MAX_PACKET);
	if (len < 0)
		return;
	if (how & 32)
		*id = p.request_id + 1;
	if (!(how & 192)) /* one in four is changed after sealing */
		out[next(in) % len] ^= next(in);
	s->far->ops->commit(s->conn, (uint32_t)len);
	s->far->ops->flush(s->far);
}

/* Takes what the relay sent, so that the session knows its packet numbers. */
static void receive(struct scene *s)
{
	static uint8_t plain[SRDMA_MAX_PAYLOAD];
	struct srdma_event ev[16];
	struct srdma_packet p;
	int n = s->far->ops->poll(s->far, ev, 16);

	for (int i = 0; i < n; i++) {
		if (ev[i].kind != SRDMA_EV_RECV)
			continue;
		srdma_session_open(s->peer, &p, ev[i].buf->data, ev[i].buf->len,
				   plain);
		s->far->ops->buf_put(ev[i].buf);
	}
}

/* --- the host ------------------------------------------------------------------ */

/* Puts an SGL behind a descriptor, with a sum that is the length as a rule. */
static void put_sgl(struct scene *s, struct srdma_desc *d, uint8_t *behind)
{
	struct input *in = &s->in;
	const unsigned n = next(in) % (SRDMA_MAX_SGES + 2);
	struct srdma_sge sgl[SRDMA_MAX_SGES];

	d->sges = (uint8_t)n;
	d->flags &= next(in) ? (uint8_t)~SRDMA_DESC_INLINE : 0xff;
	d->length = next(in) == 255;
	for (unsigned i = 0; i < n && i < SRDMA_MAX_SGES; i++) {
		sgl[i] = (struct srdma_sge){
			.addr = (uintptr_t)memory.all + next(in) * 64u,
			.length = next(in) * (i % 3 * 20),
			.lkey = any_key(s, next(in) & 0xfe),
		};
		d->length += sgl[i].length;
	}
	if (n <= SRDMA_MAX_SGES)
		srdma_sgl_encode(behind, sgl, n);
}

static void post(struct scene *s)
{
	struct input *in = &s->in;
	uint8_t slot[SRDMA_DESC_SLOT] = { 0 };
	struct srdma_desc d = {
		.opcode = next(in) % 18,
		.flags = next(in) & 7,
		.qpn = s->qp.qpn ^ (next(in) == 255),
		.id = next(in),
		.consumed = next(in),
		.length = next(in) * 32u,
		.local_addr = (uintptr_t)memory.all + next(in) * 64u,
		.rkey = next(in),
		.remote_addr = next32(in),
	};

	d.local_key = any_key(s, next(in) & 0xfe);
	if (d.flags & SRDMA_DESC_INLINE)
		d.length %= SRDMA_MAX_INLINE;
	if (next(in) & 1)
		put_sgl(s, &d, slot + SRDMA_DESC_LEN);
	srdma_desc_encode(slot, &d);
	srdma_port_mem_post(s->posts, slot, next(in) ? sizeof(slot) : next(in));
}

static void step(struct scene *s)
{
	switch (next(&s->in) % 5) {
	case 0:
	case 1:
		send_packet(s);
		break;
	case 2:
		post(s);
		break;
	case 3:
		receive(s);
		break;
	default:
		s->now += (uint64_t)next(&s->in) << next(&s->in) % 24;
		break;
	}
	srdma_relay_run(s->relay, s->now += 1000, 16);
}

static void check_memory(void)
{
	for (int i = 0; i < ROOM; i++)
		CHECK(memory.readable[i] == 0xcc && memory.outside[i] == 0xcc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct scene s;

	begin(&s, data, size);
	while (s.in.left)
		step(&s);
	check_memory();
	srdma_session_destroy(s.peer);
	srdma_relay_destroy(s.relay);
	s.far->ops->destroy(s.far);
	return 0;
}
