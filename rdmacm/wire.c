#include "rdmacm/wire.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "wire/wire.h"

/* Offsets of the fields. */
enum {
	AT_VERSION = 0,
	AT_KIND = 1,
	AT_REASON = 2,
	AT_QP_NUM = 4,
	AT_RESPONDER = 8,
	AT_QKEY = 8, /* of UD, in place of the depths and the next two */
	AT_INITIATOR = 9,
	AT_FLOW = 10,
	AT_RETRY = 11,
	AT_RNR_RETRY = 12,
	AT_SRQ = 13,
};

/* Most private data of a kind; 0 is also that of an unknown kind. */
static size_t private_max(uint8_t kind)
{
	static const uint8_t most[] = { [CM_REQUEST] = CM_REQUEST_PRIVATE,
					[CM_REPLY] = CM_REPLY_PRIVATE,
					[CM_REJECT] = CM_REJECT_PRIVATE,
					[CM_UD_REQUEST] = CM_UD_REQUEST_PRIVATE,
					[CM_UD_REPLY] = CM_UD_REPLY_PRIVATE };

	return kind < sizeof(most) ? most[kind] : 0;
}

/* The fields of a QP that is connected. */
static void write_connection(uint8_t out[CM_HEAD], const struct cm_message *m)
{
	out[AT_RESPONDER] = m->responder_resources;
	out[AT_INITIATOR] = m->initiator_depth;
	out[AT_FLOW] = m->flow_control;
	out[AT_RETRY] = m->retry_count;
	out[AT_RNR_RETRY] = m->rnr_retry_count;
	out[AT_SRQ] = m->srq;
}

static void read_connection(struct cm_message *m, const uint8_t in[CM_HEAD])
{
	m->responder_resources = in[AT_RESPONDER];
	m->initiator_depth = in[AT_INITIATOR];
	m->flow_control = in[AT_FLOW];
	m->retry_count = in[AT_RETRY];
	m->rnr_retry_count = in[AT_RNR_RETRY];
	m->srq = in[AT_SRQ];
}

size_t cm_wire_write(uint8_t out[CM_MESSAGE_MAX], const struct cm_message *m)
{
	memset(out, 0, CM_HEAD);
	out[AT_VERSION] = CM_VERSION;
	out[AT_KIND] = (uint8_t)m->kind;
	srdma_store16(out + AT_REASON, m->reason);
	srdma_store32(out + AT_QP_NUM, m->qp_num);
	if (m->kind == CM_UD_REPLY)
		srdma_store32(out + AT_QKEY, m->qkey);
	else
		write_connection(out, m);
	memcpy(out + CM_HEAD, m->private_data, m->private_len);
	return CM_HEAD + (size_t)m->private_len;
}

/* A QP can have the values of a request or reply. */
static int is_legal(const struct cm_message *m)
{
	const int connects = m->kind == CM_REQUEST || m->kind == CM_REPLY;

	if (!connects && m->kind != CM_UD_REPLY)
		return 1;
	return m->qp_num && m->qp_num <= SRDMA_MAX_QPN &&
	       m->responder_resources <= CM_DEPTH_MAX &&
	       m->initiator_depth <= CM_DEPTH_MAX &&
	       m->retry_count <= CM_RETRY_MAX &&
	       m->rnr_retry_count <= CM_RETRY_MAX;
}

int cm_wire_read(struct cm_message *m, const uint8_t *in, size_t len)
{
	memset(m, 0, sizeof(*m));
	if (len < CM_HEAD || in[AT_VERSION] != CM_VERSION ||
	    in[AT_KIND] < CM_REQUEST || in[AT_KIND] > CM_UD_REPLY ||
	    len - CM_HEAD > private_max(in[AT_KIND]))
		return -EPROTO;
	m->kind = (enum cm_kind)in[AT_KIND];
	m->reason = srdma_load16(in + AT_REASON);
	m->qp_num = srdma_load32(in + AT_QP_NUM);
	if (m->kind == CM_UD_REPLY)
		m->qkey = srdma_load32(in + AT_QKEY);
	else
		read_connection(m, in);
	m->private_len = (uint8_t)(len - CM_HEAD);
	memcpy(m->private_data, in + CM_HEAD, m->private_len);
	return is_legal(m) ? 0 : -EPROTO;
}
