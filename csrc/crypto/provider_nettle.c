#include "crypto/provider_nettle.h"

#ifdef __aarch64__
#include <asm/hwcap.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/auxv.h>
#endif

enum { AES_192 = 24 };

/* Its OCB and HMAC are OpenSSL's: Nettle 3 has no OCB, and HMAC was not
 * compared. */
static const struct srdma_provider_row rows[] = {
	{ "GCM", &srdma_suite_aead, &srdma_suite_nettle_aead, 0 },
	{ "GCM", &srdma_suite_aead_mac, &srdma_suite_nettle_aead_mac, 0 },
	{ "Poly1305", &srdma_suite_aead, &srdma_suite_nettle_aead, 0 },
	{ "Poly1305", &srdma_suite_aead_mac, &srdma_suite_nettle_aead_mac, 0 },
	{ "CMAC", &srdma_suite_mac, &srdma_suite_nettle_cmac, AES_192 },
};

static const struct srdma_suite_verbs *verbs(const struct srdma_suite *s)
{
	return srdma_provider_own(rows, sizeof(rows) / sizeof(rows[0]), s);
}

/* The provider has no state. */
static void destroy(struct srdma_provider *p)
{
	(void)p;
}

int srdma_nettle_create(struct srdma_provider **out)
{
	static struct srdma_provider nettle = { "nettle", verbs, destroy };

	*out = &nettle;
	return 0;
}

#ifdef __aarch64__
/* 1 if the library is a "fat" build of 3.8 or later. Such a build has code for
 * the CPU's instructions, under these names, and selects it by AT_HWCAP. Other
 * builds have code with tables, or do not tell. */
static int is_fat(void)
{
	return dlsym(RTLD_DEFAULT, "_nettle_aes128_encrypt_arm64") &&
	       dlsym(RTLD_DEFAULT, "_nettle_ghash_update_arm64");
}

int srdma_nettle_suits(void)
{
	const unsigned long need = HWCAP_AES | HWCAP_PMULL;

	return (getauxval(AT_HWCAP) & need) == need && is_fat() &&
	       !secure_getenv("NETTLE_FAT_OVERRIDE");
}
#else
int srdma_nettle_suits(void)
{
	return 0;
}
#endif
