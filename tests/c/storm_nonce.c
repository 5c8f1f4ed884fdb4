/*
 * No nonce is spent twice under one key, whoever has the key: of each packet
 * that is sealed, key and nonce are those that the cipher itself was given.
 * The linker leads all calls of EVP_CipherInit_ex2() here (--wrap). MACs
 * without a nonce have the packet number, see storm_fault.c.
 */
#include <stdint.h>
#include <string.h>

#include <openssl/evp.h>

#include "bytes.h"
#include "storm.h"

/* The storm that runs. OpenSSL knows of none. */
static struct storm *now;

static uint64_t mix(uint64_t z)
{
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* Bytes as one number, on top of another. */
static uint64_t digest(uint64_t z, const uint8_t *at, size_t len)
{
	uint8_t last[8] = { 0 };

	for (; len > sizeof(last); len -= sizeof(last), at += sizeof(last))
		z = mix(z ^ srdma_load64(at));
	memcpy(last, at, len);
	return mix(z ^ srdma_load64(last));
}

static void spend(struct storm *w, uint64_t pair)
{
	uint64_t at = pair & (STORM_NONCES - 1);

	pair |= !pair; /* 0 marks a free place */
	STORM_CHECK(w, ++w->nonce_count < STORM_NONCES / 4 * 3,
		    "too many packets");
	for (; w->nonces[at]; at = (at + 1) & (STORM_NONCES - 1))
		STORM_CHECK(w, w->nonces[at] != pair,
			    "a nonce twice under one key");
	w->nonces[at] = pair;
}

void storm_nonce_watch(struct storm *w)
{
	now = w;
}

int __real_EVP_CipherInit_ex2(EVP_CIPHER_CTX *ctx, const EVP_CIPHER *cipher,
			      const unsigned char *key, const unsigned char *iv,
			      int enc, const OSSL_PARAM params[]);
int __wrap_EVP_CipherInit_ex2(EVP_CIPHER_CTX *ctx, const EVP_CIPHER *cipher,
			      const unsigned char *key, const unsigned char *iv,
			      int enc, const OSSL_PARAM params[]);

int __wrap_EVP_CipherInit_ex2(EVP_CIPHER_CTX *ctx, const EVP_CIPHER *cipher,
			      const unsigned char *key, const unsigned char *iv,
			      int enc, const OSSL_PARAM params[])
{
	int r = __real_EVP_CipherInit_ex2(ctx, cipher, key, iv, enc, params);
	uint64_t id;

	if (key) {
		id = digest(1, key, (size_t)EVP_CIPHER_CTX_get_key_length(ctx));
		EVP_CIPHER_CTX_set_app_data(ctx, (void *)(uintptr_t)id);
	}
	if (now && iv && EVP_CIPHER_CTX_is_encrypting(ctx)) {
		id = (uintptr_t)EVP_CIPHER_CTX_get_app_data(ctx);
		spend(now, digest(id, iv, 12));
	}
	return r;
}
