#include "verbs/ud_wire.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"

enum {
	GRH_VERSION = 6,     /* in the upper 4 bits of the first byte */
	GRH_NEXT_BTH = 0x1b, /* IBA 8.3.2: a BTH follows */
	GRH_HOP_LIMIT = 64,
};

static int legal_qpn(uint32_t qpn)
{
	return qpn >= 1 && qpn <= UD_QPN_MOST;
}

void ud_hello_write(uint8_t out[UD_HELLO], const struct ud_hello *h)
{
	memset(out, 0, UD_HELLO);
	out[0] = UD_HELLO_VERSION;
	out[1] = (uint8_t)h->kind;
	srdma_store32(out + 4, h->ud);
	srdma_store32(out + 8, h->session);
}

int ud_hello_read(struct ud_hello *h, const uint8_t *in, size_t len)
{
	if (len != UD_HELLO || in[0] != UD_HELLO_VERSION || in[2] || in[3])
		return -EPROTO;
	h->kind = (enum ud_hello_kind)in[1];
	h->ud = srdma_load32(in + 4);
	h->session = srdma_load32(in + 8);
	if (!legal_qpn(h->session))
		return -EPROTO;
	switch (h->kind) {
	case UD_REQUEST:
		return legal_qpn(h->ud) ? 0 : -EPROTO;
	case UD_REPLY:
	case UD_READY:
		return h->ud ? -EPROTO : 0;
	}
	return -EPROTO;
}

void ud_head_write(uint8_t out[UD_HEAD], uint32_t qkey)
{
	memset(out, 0, UD_HEAD);
	out[0] = UD_VERSION;
	srdma_store32(out + 4, qkey);
}

int ud_head_read(uint32_t *qkey, const uint8_t *in, size_t len)
{
	if (len < UD_HEAD || in[0] != UD_VERSION || in[1] || in[2] || in[3])
		return -EPROTO;
	*qkey = srdma_load32(in + 4);
	return 0;
}

void ud_grh_write(uint8_t out[UD_GRH], const struct ud_route *r)
{
	memset(out, 0, UD_GRH);
	out[0] = GRH_VERSION << 4;
	srdma_store16(out + 4, r->len);
	out[6] = GRH_NEXT_BTH;
	out[7] = GRH_HOP_LIMIT;
	memcpy(out + 8, r->from, SRDMA_GID_LEN);
	memcpy(out + 24, r->to, SRDMA_GID_LEN);
}
