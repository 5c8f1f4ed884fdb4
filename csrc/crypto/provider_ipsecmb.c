#include "crypto/provider_ipsecmb.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

enum { AES_192 = 24 };

static const struct srdma_provider_row rows[] = {
	{ "GCM", &srdma_suite_aead, &srdma_suite_ipsecmb_gcm, 0 },
	{ "GCM", &srdma_suite_aead_mac, &srdma_suite_ipsecmb_gmac, 0 },
	{ "Poly1305", &srdma_suite_aead, &srdma_suite_ipsecmb_chacha, 0 },
	{ "Poly1305", &srdma_suite_aead_mac, &srdma_suite_ipsecmb_poly1305, 0 },
	{ "CMAC", &srdma_suite_mac, &srdma_suite_ipsecmb_cmac, AES_192 },
};

static const struct srdma_suite_verbs *verbs(const struct srdma_suite *s)
{
	return srdma_provider_own(rows, sizeof(rows) / sizeof(rows[0]), s);
}

static void destroy(struct srdma_provider *p)
{
	struct srdma_ipsecmb *mb = (struct srdma_ipsecmb *)p;

	free_mb_mgr(mb->mgr);
	free_mb_mgr(mb->narrow);
	srdma_wipe(mb, sizeof(*mb));
	free(mb);
}

static void init_auto(IMB_MGR *mgr)
{
	IMB_ARCH arch;

	init_mb_mgr_auto(mgr, &arch);
}

/* Makes a manager that passed the library's self-tests. -ENOTSUP if the CPU
 * lacks a feature that the fast code needs. */
static int manager(IMB_MGR **out, void (*init)(IMB_MGR *mgr))
{
	const uint64_t need =
		IMB_FEATURE_AESNI | IMB_FEATURE_PCLMULQDQ | IMB_FEATURE_AVX2;
	IMB_MGR *mgr = alloc_mb_mgr(0);

	if (!mgr)
		return -ENOMEM;
	*out = mgr;
	if ((mgr->features & need) != need)
		return -ENOTSUP;
	init(mgr);
	if ((mgr->features & IMB_FEATURE_SELF_TEST) &&
	    !(mgr->features & IMB_FEATURE_SELF_TEST_PASS))
		return -EIO;
	return imb_get_errno(mgr) ? -EIO : 0;
}

int srdma_ipsecmb_create(struct srdma_provider **out)
{
	struct srdma_ipsecmb *mb = calloc(1, sizeof(*mb));
	int r;

	*out = NULL;
	if (!mb)
		return -ENOMEM;
	r = manager(&mb->mgr, init_auto);
	if (!r)
		r = manager(&mb->narrow, init_mb_mgr_avx2);
	if (r) {
		destroy(&mb->provider);
		return r;
	}
	mb->provider = (struct srdma_provider){ "ipsec-mb", verbs, destroy };
	*out = &mb->provider;
	return 0;
}

const uint8_t *srdma_ipsecmb_join(struct srdma_ipsecmb *mb,
				  const struct srdma_suite_io *io)
{
	if (io->ad_len > sizeof(mb->input) ||
	    io->in_len > sizeof(mb->input) - io->ad_len)
		return NULL;
	if (!io->in_len)
		return io->ad;
	memcpy(mb->input, io->ad, io->ad_len);
	memcpy(mb->input + io->ad_len, io->in, io->in_len);
	return mb->input;
}

int srdma_ipsecmb_do(IMB_MGR *mgr)
{
	const IMB_JOB *job = IMB_SUBMIT_JOB(mgr);

	if (!job)
		job = IMB_FLUSH_JOB(mgr);
	return job && job->status == IMB_STATUS_COMPLETED ? 0 : -EIO;
}
