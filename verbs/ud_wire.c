#include "verbs/ud_wire.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "verbs/group_gid.h"

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

void ud_head_write(uint8_t out[UD_HEAD_MAX], const struct ud_head *h)
{
	memset(out, 0, UD_HEAD);
	out[0] = h->group ? UD_VERSION_GROUP : UD_VERSION;
	srdma_store32(out + 4, h->qkey);
	if (h->group)
		memcpy(out + UD_HEAD, h->group, SRDMA_GID_LEN);
}

int ud_head_read(struct ud_head *h, const uint8_t *in, size_t len)
{
	if (len < UD_HEAD || in[1] || in[2] || in[3])
		return -EPROTO;
	*h = (struct ud_head){ .qkey = srdma_load32(in + 4) };
	if (in[0] == UD_VERSION)
		return 0;
	if (in[0] != UD_VERSION_GROUP || len < UD_HEAD_MAX ||
	    !verbs_gid_is_group(in + UD_HEAD))
		return -EPROTO;
	h->group = in + UD_HEAD;
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
