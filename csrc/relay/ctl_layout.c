#include "relay/ctl_layout.h"

#define MSG struct srdma_ctl_msg
#define F(TYPE, M)                                                             \
	{                                                                      \
		SRDMA_FIELD_##TYPE, sizeof(((MSG *)0)->M), offsetof(MSG, M)    \
	}
#define PAD(SIZE)                                                              \
	{                                                                      \
		SRDMA_FIELD_ZERO, SIZE, 0                                      \
	}
#define REST(TYPE, M)                                                          \
	{                                                                      \
		SRDMA_FIELD_##TYPE, 0, offsetof(MSG, M)                        \
	}
#define STOP                                                                   \
	{                                                                      \
		SRDMA_FIELD_END, 0, 0                                          \
	}

/* Bodies (docs/local-interface.md 3) in wire order. */
static const struct srdma_ctl_field empty[] = { STOP };
static const struct srdma_ctl_field hello[] = { F(UINT, version), STOP };
static const struct srdma_ctl_field hello_answer[] = {
	F(UINT, hello.version),	    F(UINT, hello.flags),
	F(UINT, hello.host_kind),   F(UINT, hello.pid),
	F(TEXT, hello.host_device), F(TEXT, hello.wire),
	F(TEXT, hello.name),	    F(BYTES, hello.suites),
	F(UINT, hello.threads),	    F(UINT, hello.thread),
	F(BYTES, hello.gid),	    STOP,
};
static const struct srdma_ctl_field open_[] = {
	F(UINT, open.ring),
	F(UINT, open.flags),
	STOP,
};
static const struct srdma_ctl_field open_answer[] = {
	F(UINT, opened.leg),
	F(BYTES, opened.token),
	F(TEXT, opened.address),
	STOP,
};
static const struct srdma_ctl_field attach[] = { F(BYTES, token), STOP };
static const struct srdma_ctl_field attach_answer[] = {
	F(UINT, attached.leg),
	F(UINT, attached.user),
	F(TEXT, attached.account),
	STOP,
};
static const struct srdma_ctl_field reg_mr[] = {
	F(UINT, reg_mr.leg),
	F(UINT, reg_mr.mr.region.access),
	F(UINT, reg_mr.mr.region.addr),
	F(UINT, reg_mr.mr.region.length),
	F(UINT, reg_mr.mr.region.host_rkey),
	F(UINT, reg_mr.mr.scope_qpn),
	F(UINT, reg_mr.mr.region.fd_offset),
	F(UINT, reg_mr.mr.log2_block),
	F(UINT, reg_mr.mr.depth),
	PAD(2),
	F(TEXT, reg_mr.identity),
	F(UINT, reg_mr.mr.bias),
	STOP,
};
static const struct srdma_ctl_field reg_mr_answer[] = { F(UINT, key), STOP };
static const struct srdma_ctl_field dereg_mr[] = {
	F(UINT, dereg_mr.leg),
	F(UINT, dereg_mr.key),
	STOP,
};
static const struct srdma_ctl_field replace[] = {
	F(UINT, replace.leg),
	F(UINT, replace.key),
	F(UINT, replace.other),
	STOP,
};
static const struct srdma_ctl_field init[] = {
	F(UINT, init.leg),	     F(UINT, init.qp.sq),  F(UINT, init.qp.rq),
	F(UINT, init.qp.timeout_ms), F(UINT, init.qp.mtu), STOP,
};
static const struct srdma_ctl_field init_answer[] = {
	F(UINT, qp.qp.qpn),	F(BYTES, qp.qp.eid),   F(UINT, qp.qp.pn),
	F(UINT, qp.qp.mtu),	F(UINT, qp.qp.window), F(UINT, qp.qp.reads),
	F(BYTES, qp.qp.random), F(TEXT, qp.wire),      STOP,
};
static const struct srdma_ctl_field reset[] = {
	F(UINT, reset.qpn),
	F(UINT, reset.posted),
	STOP,
};
static const struct srdma_ctl_field reinit[] = {
	F(UINT, reinit.qpn),	F(UINT, reinit.qp.sq),
	F(UINT, reinit.qp.rq),	F(UINT, reinit.qp.timeout_ms),
	F(UINT, reinit.qp.mtu), STOP,
};
static const struct srdma_ctl_field reinit_answer[] = {
	F(UINT, qp.qp.qpn),	F(BYTES, qp.qp.eid),
	F(UINT, qp.qp.pn),	F(UINT, qp.qp.mtu),
	F(UINT, qp.qp.window),	F(UINT, qp.qp.reads),
	F(BYTES, qp.qp.random), F(TEXT, qp.wire),
	F(UINT, qp.records),	STOP,
};
static const struct srdma_ctl_field keys[] = {
	F(UINT, keys.qp.qpn),
	F(UINT, keys.qp.role),
	F(UINT, keys.qp.suite),
	F(UINT, keys.qp.level),
	F(UINT, keys.qp.tag_len),
	F(UINT, keys.qp.mode),
	F(UINT, keys.qp.secret_len),
	PAD(2),
	F(BYTES, keys.qp.generation),
	F(BYTES, keys.qp.peer_eid),
	F(UINT, keys.qp.peer_qpn),
	F(UINT, keys.qp.peer_pn),
	F(UINT, keys.qp.peer_mtu),
	F(UINT, keys.qp.peer_window),
	F(UINT, keys.qp.peer_reads),
	F(TEXT, keys.qp.peer_wire),
	F(TEXT, keys.identity),
	F(BYTES, keys.qp.tx_secret),
	F(BYTES, keys.qp.rx_secret),
	F(BYTES, keys.qp.group_key),
	STOP,
};
static const struct srdma_ctl_field qpn[] = { F(UINT, qpn), STOP };
static const struct srdma_ctl_field wait_answer[] = {
	F(UINT, wait.state),
	F(UINT, wait.reason),
	STOP,
};
static const struct srdma_ctl_field stats_answer[] = { REST(COUNTERS, stats),
						       STOP };
static const struct srdma_ctl_field key[] = {
	F(UINT, secret.qpn),	     F(UINT, secret.secret_len),
	F(UINT, secret.group),	     PAD(2),
	F(BYTES, secret.generation), F(BYTES, secret.peer_eid),
	F(UINT, secret.peer_qpn),    STOP,
};
static const struct srdma_ctl_field key_answer[] = {
	F(BYTES, secret_answer.secret),
	F(BYTES, secret_answer.group_key),
	STOP,
};
static const struct srdma_ctl_field cap[] = {
	F(UINT, cap.leg),
	F(UINT, cap.cap.key),
	F(UINT, cap.cap.offset),
	F(UINT, cap.cap.length),
	F(UINT, cap.cap.bearer.expiry),
	F(UINT, cap.cap.rights),
	PAD(3),
	F(BYTES, cap.cap.bearer.holder),
	STOP,
};
static const struct srdma_ctl_field cap_answer[] = { REST(TOKEN, capability),
						     STOP };
static const struct srdma_ctl_field install[] = {
	F(UINT, install.leg),
	REST(TOKEN, install.token),
	STOP,
};
static const struct srdma_ctl_field install_answer[] = { F(UINT, handle),
							 STOP };
static const struct srdma_ctl_field uninstall[] = {
	F(UINT, uninstall.leg),
	F(UINT, uninstall.handle),
	STOP,
};
static const struct srdma_ctl_field revoke[] = {
	F(UINT, revoke.leg),
	F(UINT, revoke.range.key),
	F(UINT, revoke.range.offset),
	F(UINT, revoke.range.length),
	STOP,
};

static const struct srdma_ctl_field rotate[] = {
	F(UINT, rotate.leg),
	F(UINT, rotate.age),
	STOP,
};
static const struct srdma_ctl_field rotate_answer[] = {
	F(UINT, rotated.serial),
	F(UINT, rotated.behind),
	STOP,
};
static const struct srdma_ctl_field rekey[] = {
	F(UINT, rekey.qpn),	   F(UINT, rekey.direction),
	F(UINT, rekey.secret_len), PAD(2),
	F(BYTES, rekey.secret),	   STOP,
};
static const struct srdma_ctl_field end[] = {
	F(UINT, end.qpn),
	F(UINT, end.reason),
	STOP,
};
static const struct srdma_ctl_field agent[] = {
	F(UINT, agent.flags),
	STOP,
};

static const struct srdma_ctl_field life[] = {
	F(UINT, life.qpn),
	F(UINT, life.seconds),
	STOP,
};

static const struct srdma_ctl_field modify[] = {
	F(UINT, modify.qpn),	  F(UINT, modify.fields),
	F(UINT, modify.access),	  F(UINT, modify.timeout_ms),
	F(UINT, modify.grace_ms), STOP,
};

static const struct srdma_ctl_field prove[] = {
	F(UINT, prove.qpn),	 F(UINT, prove.check),	PAD(3),
	F(BYTES, prove.context), F(BYTES, prove.proof), STOP,
};
static const struct srdma_ctl_field prove_answer[] = {
	F(UINT, proved.tx),
	F(UINT, proved.rx),
	F(BYTES, proved.proof),
	STOP,
};
static const struct srdma_ctl_field keep[] = {
	F(UINT, keep.n),
	F(UINT, keep.len),
	F(BYTES, keep.qpns),
	F(BYTES, keep.data),
	STOP,
};
static const struct srdma_ctl_field adopt[] = { F(UINT, after), STOP };
static const struct srdma_ctl_field adopt_answer[] = {
	F(UINT, adopted.serial),
	F(UINT, adopted.leg),
	F(UINT, adopted.n),
	F(UINT, adopted.len),
	F(BYTES, adopted.qps),
	F(BYTES, adopted.data),
	STOP,
};

static const struct srdma_ctl_field restrict_[] = {
	F(UINT, restrict_.connections),
	F(UINT, restrict_.legs),
	F(UINT, restrict_.qps),
	F(UINT, restrict_.regions),
	F(UINT, restrict_.bytes),
	F(TEXT, restrict_.account),
	F(UINT, restrict_.keep),
	F(TEXT, restrict_.group),
	STOP,
};

#define COUNTS(M)                                                              \
	F(UINT, M.packets_sent), F(UINT, M.bytes_sent),                        \
		F(UINT, M.packets_verified), F(UINT, M.bytes_verified),        \
		F(UINT, M.packets_resent), F(UINT, M.bad_tags),                \
		F(UINT, M.replays), F(UINT, M.dropped),                        \
		F(UINT, M.epochs_sent), F(UINT, M.epochs_received),            \
		F(UINT, M.qps_failed)

static const struct srdma_ctl_field quota[] = {
	F(UINT, quota.kind),
	F(UINT, quota.flags),
	F(UINT, quota.revision),
	F(UINT, quota.idle),
	F(TEXT, quota.name),
	F(BYTES, quota.quotas),
	STOP,
};
static const struct srdma_ctl_field usage_answer[] = {
	F(UINT, usage.serial), F(UINT, usage.kind),
	F(UINT, usage.idle),   F(TEXT, usage.name),
	F(TEXT, usage.group),  F(BYTES, usage.usages),
	COUNTS(usage.counts),  STOP,
};
static const struct srdma_ctl_field qps_answer[] = {
	F(UINT, qps.next),     F(UINT, qps.qpn),    F(UINT, qps.leg),
	F(UINT, qps.state),    F(UINT, qps.reason), F(UINT, qps.idle),
	F(TEXT, qps.identity), COUNTS(qps.counts),  STOP,
};

static const struct srdma_ctl_field share[] = {
	F(UINT, share.qpn),
	F(UINT, share.holder),
	STOP,
};

static const struct srdma_ctl_kind_layout kinds[SRDMA_CTL_KINDS] = {
	[SRDMA_CTL_HELLO] = { "HELLO", { hello, hello_answer } },
	[SRDMA_CTL_OPEN] = { "OPEN", { open_, open_answer } },
	[SRDMA_CTL_ATTACH] = { "ATTACH", { attach, attach_answer } },
	[SRDMA_CTL_REG_MR] = { "REG_MR", { reg_mr, reg_mr_answer } },
	[SRDMA_CTL_DEREG_MR] = { "DEREG_MR", { dereg_mr, empty } },
	[SRDMA_CTL_INIT] = { "INIT", { init, init_answer } },
	[SRDMA_CTL_KEYS] = { "KEYS", { keys, empty } },
	[SRDMA_CTL_WAIT] = { "WAIT", { qpn, wait_answer } },
	[SRDMA_CTL_DESTROY] = { "DESTROY", { qpn, empty } },
	[SRDMA_CTL_STATS] = { "STATS", { empty, stats_answer } },
	[SRDMA_CTL_KEY] = { "KEY", { key, key_answer } },
	[SRDMA_CTL_CAP] = { "CAP", { cap, cap_answer } },
	[SRDMA_CTL_INSTALL] = { "INSTALL", { install, install_answer } },
	[SRDMA_CTL_UNINSTALL] = { "UNINSTALL", { uninstall, empty } },
	[SRDMA_CTL_REVOKE] = { "REVOKE", { revoke, empty } },
	[SRDMA_CTL_ROTATE] = { "ROTATE", { rotate, rotate_answer } },
	[SRDMA_CTL_REKEY] = { "REKEY", { rekey, empty } },
	[SRDMA_CTL_EXPIRE] = { "EXPIRE", { qpn, empty } },
	[SRDMA_CTL_END] = { "END", { end, empty } },
	[SRDMA_CTL_LIFE] = { "LIFE", { life, empty } },
	[SRDMA_CTL_AGENT] = { "AGENT", { agent, empty } },
	[SRDMA_CTL_PROVE] = { "PROVE", { prove, prove_answer } },
	[SRDMA_CTL_KEEP] = { "KEEP", { keep, empty } },
	[SRDMA_CTL_ADOPT] = { "ADOPT", { adopt, adopt_answer } },
	[SRDMA_CTL_RESTRICT] = { "RESTRICT", { restrict_, empty } },
	[SRDMA_CTL_QUOTA] = { "QUOTA", { quota, empty } },
	[SRDMA_CTL_USAGE] = { "USAGE", { adopt, usage_answer } },
	[SRDMA_CTL_QPS] = { "QPS", { adopt, qps_answer } },
	[SRDMA_CTL_WITHDRAW] = { "WITHDRAW", { dereg_mr, empty } },
	[SRDMA_CTL_MODIFY] = { "MODIFY", { modify, empty } },
	[SRDMA_CTL_SHARE] = { "SHARE", { share, empty } },
	[SRDMA_CTL_RESET] = { "RESET", { reset, empty } },
	[SRDMA_CTL_REINIT] = { "REINIT", { reinit, reinit_answer } },
	[SRDMA_CTL_REPLACE] = { "REPLACE", { replace, empty } },
};

const struct srdma_ctl_kind_layout *srdma_ctl_layout_of(uint32_t kind)
{
	return kind < SRDMA_CTL_KINDS && kinds[kind].name ? &kinds[kind] : NULL;
}
