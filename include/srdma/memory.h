/*
 * Memory regions, and capabilities for parts of them (docs/protocol.md 6,
 * docs/capabilities.md). Errors and threads: device.h.
 */
#ifndef SRDMA_PUBLIC_MEMORY_H
#define SRDMA_PUBLIC_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "srdma/types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct srdma_pd;
struct srdma_qp;
struct srdma_mr;

struct srdma_mr_attr {
	void *addr;	 /* srdma_reg_mr() only, else NULL */
	size_t length;	 /* bytes, not 0 */
	uint32_t access; /* enum srdma_access, or-ed */
	/* The scope (docs/protocol.md 6), at most one of three: the QP whose
	 * peer may use the region; the identity (a URI) of the peers that may,
	 * on every QP; whole_pd 1: every peer of every QP of the PD. One is
	 * needed for remote access without SRDMA_ACCESS_PROOF. The program's
	 * own requests may use the region on every QP. */
	const struct srdma_qp *qp;
	const char *identity;
	int whole_pd;
	/* SRDMA_ACCESS_PROOF only (docs/protocol.md 6.1), else 0: bytes of a
	 * block, a power of two from 64 to 2^30 (0: 4,096); levels of the key
	 * tree, at most 48 (0: 48). */
	uint32_t block_size;
	uint8_t depth_limit;
	/* has_iova 1: work requests of the program and of peers name the first
	 * byte by iova. Else by its address. With REMOTE_ATOMIC both must be
	 * equal modulo 8. */
	uint64_t iova;
	int has_iova;
};

/*
 * Allocates zeroed memory that the worker maps, and registers it. Atomics on it
 * are atomic with respect to the CPUs of this machine too. Over RDMA it is
 * ordinary memory, registered with the device, whose properties decide about
 * atomics.
 * -EINVAL, -ENOTSUP: an attribute, or a device without atomics; -EDQUOT: 4,096
 * regions per PD; -ENOMEM: over RDMA also the limit of locked memory; -EBUSY:
 * a region of another program exposes some of the bytes (SRDMA_ACCESS_SHARED).
 */
int srdma_alloc_mr(struct srdma_mr **mr, struct srdma_pd *pd,
		   const struct srdma_mr_attr *attr);
/*
 * Registers memory of the caller, who keeps it mapped until srdma_dereg_mr().
 * With SRDMA_ACCESS_REMOTE_READ or SRDMA_ACCESS_REMOTE_ATOMIC peers can read
 * what it holds now: initialise it before (RFC 5042 6.3.2).
 * The worker copies by process_vm_readv() and process_vm_writev() (docs/local-
 * interface.md 4.4): therefore this call permits the worker to trace this
 * process (PR_SET_PTRACER). The kernel keeps one such permission: that for a
 * second worker replaces the first. srdma_alloc_mr() is faster and needs no
 * permission. Over RDMA both are the same, and neither permits tracing.
 * Errors: srdma_alloc_mr(); -EPERM and -EFAULT of the worker's probe, or
 * -EFAULT of the device.
 */
int srdma_reg_mr(struct srdma_mr **mr, struct srdma_pd *pd,
		 const struct srdma_mr_attr *attr);
/*
 * Ends all remote rights of a region, for good (docs/protocol.md 6.5). When it
 * returns 0, every access of a peer is complete or refused: the program can
 * examine and use the bytes, and no peer changes them meanwhile (RFC 5042
 * 6.2.2). The key stays valid in the program's own work requests; a posted
 * receive of the region still takes a message. Memory is exposed again by
 * another registration, which has another key. After -ETIMEDOUT the rights have
 * ended, but DMA may be under way: call it again. -ENOTCONN: the worker ended.
 */
int srdma_withdraw_mr(struct srdma_mr *mr);
/*
 * Returns when no DMA uses the region, and frees memory of srdma_alloc_mr(). On
 * failure the region exists until a further call succeeds. It succeeds after
 * the end of the worker. NULL is allowed.
 */
int srdma_dereg_mr(struct srdma_mr *mr);

struct srdma_mr_info {
	void *addr;
	size_t length;
	uint32_t key; /* local key of work requests, and rkey for peers */
};

void srdma_query_mr(const struct srdma_mr *mr, struct srdma_mr_info *info);

/* --- capabilities: regions with SRDMA_ACCESS_PROOF ----------------------- */

enum {
	SRDMA_CAP_MIN = 88, /* bytes of a token */
	SRDMA_CAP_MAX = 4584,
	SRDMA_HOLDER_LEN = 16,
};

struct srdma_cap_attr {
	/* Bytes from the start of the region; multiples of its block size,
	 * except for an end at the end of the region. Both 0: the region. */
	uint64_t offset, length;
	uint32_t access; /* SRDMA_ACCESS_REMOTE_*, or-ed */
	/* First 16 bytes of the SHA-256 of the identity (a URI) that may use
	 * it; NULL: any. */
	const uint8_t *holder;
	uint32_t expires; /* Unix time, s, from which it is void; 0: never */
};

/*
 * Makes a capability (CAP, docs/local-interface.md 3.5) and writes its token,
 * which is secret, to size bytes at token. With a holder or an expiry it is
 * sealed: its bearer cannot narrow it. Returns the length of the token, at most
 * SRDMA_CAP_MAX.
 * -ENOSPC: size is too small; -EPERM: the region demands no proofs; -EACCES:
 * rights; -EINVAL, -ERANGE: the range.
 */
int srdma_make_cap(uint8_t *token, size_t size, struct srdma_mr *mr,
		   const struct srdma_cap_attr *attr);

struct srdma_cap_info {
	uint64_t remote_addr; /* of the first byte, for work requests */
	uint64_t length;
	uint64_t offset; /* of the first byte, from the start of the region */
	uint32_t rkey;
	uint32_t access;  /* SRDMA_ACCESS_REMOTE_*, or-ed */
	uint32_t expires; /* Unix time, s; 0: never */
	int sealed;
};

/*
 * Reads the head of a token of len bytes. It checks length and head only;
 * srdma_install_cap() checks the whole token.
 * -EPROTO: no token of this version.
 */
int srdma_query_cap(struct srdma_cap_info *info, const uint8_t *token,
		    size_t len);

/*
 * Installs a capability for the requests of a PD's QPs (INSTALL). *handle is
 * the field `capability` of their work requests. The QPs need a key mode with
 * SRDMA_MODE_MEM.
 * -EMSGSIZE, -EPROTO, -EBADMSG: no token; -EDQUOT: 1,024 per PD.
 */
int srdma_install_cap(uint32_t *handle, struct srdma_pd *pd,
		      const uint8_t *token, size_t len);
/*
 * Requests that still name the handle fail with BAD_CAPABILITY. -ENOENT: it is
 * not installed. After -ETIMEDOUT call it again: from then on a handle of the PD
 * that is not installed is no error, because the former call may have
 * succeeded.
 */
int srdma_uninstall_cap(struct srdma_pd *pd, uint32_t handle);

/*
 * Revokes all capabilities for a range of a region (docs/protocol.md 6.3);
 * offset and length in bytes; both 0: the whole region. Returns when no DMA
 * that one of them authorized is under way. After -ETIMEDOUT they are void, but
 * DMA may be under way.
 * -EPERM, -EINVAL, -ERANGE: as for srdma_make_cap(); -ENOSPC, -EDQUOT: limits
 * of revoked ranges.
 */
int srdma_revoke_caps(struct srdma_mr *mr, uint64_t offset, uint64_t length);

#ifdef __cplusplus
}
#endif

#endif
