/*
 * Managers of intel-ipsec-mb for rungs that call it directly, set up as the
 * provider does it (csrc/crypto/provider_ipsecmb.c).
 */
#ifndef BENCH_MB_H
#define BENCH_MB_H

#ifdef SRDMA_HAVE_IPSECMB

#include <intel-ipsec-mb.h>

#include "rung.h"

/* Use all features of the CPU. */
static inline void mb_init_auto(IMB_MGR *mgr)
{
	IMB_ARCH arch;

	init_mb_mgr_auto(mgr, &arch);
}

/* NULL: the CPU lacks features that the provider needs. */
static inline IMB_MGR *mb_manager(void (*init)(IMB_MGR *mgr))
{
	const uint64_t need =
		IMB_FEATURE_AESNI | IMB_FEATURE_PCLMULQDQ | IMB_FEATURE_AVX2;
	IMB_MGR *mgr = alloc_mb_mgr(0);

	if (!mgr)
		wrong("ipsec-mb", "out of memory");
	if ((mgr->features & need) != need) {
		free_mb_mgr(mgr);
		return NULL;
	}
	init(mgr);
	if (imb_get_errno(mgr))
		wrong("ipsec-mb", imb_get_strerror(imb_get_errno(mgr)));
	return mgr;
}

#endif

#endif
